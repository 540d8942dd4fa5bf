"""`bert-flow export`: a SavedModel, or another format."""

import logging

from bert_flow_tf.commands.command import command, option, setting_options
from bert_flow_tf.commands.input_options import INPUT, InputForm
from bert_flow_tf.commands.model_options import ModelOptions
from bert_flow_tf.commands.outputs import lock_output, say
from bert_flow_tf.common.settings import DTYPES
from bert_flow_tf.export.formats import TF_SAVEDMODEL, ExportSettings, export_path

logger = logging.getLogger(__name__)


@command(
    epilog="\b\nbert-flow export --model runs/stsb_flow --out exported/stsb", one_of=[("model",)]
)
@setting_options(ModelOptions, "model", name="model")
@option(
    "--out", required=True, metavar="DIR", help="Folder to write; a SavedModel is a version in it."
)
@setting_options(ExportSettings)
@INPUT
@setting_options(InputForm, name="form")
@option(
    "--overwrite",
    is_flag=True,
    help="Replace this version or folder; a running server keeps the old one.",
)
def export(
    model: ModelOptions,
    out: str,
    settings: ExportSettings,
    input_path: str | None,
    form: InputForm,
    overwrite: bool,
) -> None:
    """Write a SavedModel or another format, and check it.

    The written files must give the model's embeddings of a few texts, with int8 of 200 more. With
    --input, these are texts of the file, of all lengths.

    A SavedModel has four signatures: serving_default (sentences to embedding), similarity
    (sentence_a and sentence_b to cosine), tokens (word-piece ids to embedding) and pooled
    (sentences to the embedding before the flow).
    """
    lock_output(out, f"--out={out}")
    export_path(out, settings, overwrite=overwrite, flag=f"--out={out}")
    texts = form.texts(input_path) if input_path else []
    loaded = model.load()
    logger.info("writing and checking the %s", settings.format)
    # A mistake in the options is found before TensorFlow loads.
    from bert_flow_tf.export.export import export_model

    exported = export_model(loaded, out, settings, texts=texts, overwrite=overwrite)
    checked = "not checked: onnxruntime is not installed"
    if exported.max_difference is not None:
        checked = (
            f"reloaded: max difference {exported.max_difference:.1e}, values up to "
            f"{exported.max_value:.1e}"
        )
        if settings.dtype != DTYPES[0]:
            checked += (
                f", cosines {exported.mean_cosine:.4f} on average and {exported.min_cosine:.4f} at "
                "least"
            )
        checked += f", {exported.texts} texts"
    where = f"SavedModel written: {out}/{exported.path.name}"
    say(
        f"{where if settings.format == TF_SAVEDMODEL else f'{settings.format} written: {out}'} "
        f"({checked})"
    )
