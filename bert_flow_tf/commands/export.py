"""`bert-flow export`: a run as a SavedModel for TensorFlow Serving, or as another format."""

from typing import Any

import click

from bert_flow_tf.commands.options import HELP_OF_MODEL, WHOLE, check_model
from bert_flow_tf.commands.outputs import own, own_folder
from bert_flow_tf.errors import UserError
from bert_flow_tf.model.saved_model import check_model_folder
from bert_flow_tf.serving import DTYPES
from bert_flow_tf.serving.formats import FORMATS, check_format, version_folder


@click.command()
@click.option("--model", required=True, metavar="RUN", help=HELP_OF_MODEL)
@click.option(
    "--out", required=True, metavar="DIR", help="Folder of the model; a SavedModel's version becomes a folder in it."
)
@click.option("--format", type=click.Choice(list(FORMATS)), default=next(iter(FORMATS)), help="Of what is written.")
@click.option(
    "--version", type=WHOLE, metavar="N", help="For TensorFlow Serving.  [default: one above the highest there]"
)
@click.option("--normalize", is_flag=True, help="Scale every embedding to norm 1.")
@click.option(
    "--low_dim",
    type=WHOLE,
    metavar="D",
    help="Average channels after the flow, down to D.  [default: the run's]",
)
@click.option("--max_seq_length", type=WHOLE, metavar="N", help="Cut sentences at N word pieces.  [default: the run's]")
@click.option(
    "--dtype",
    type=click.Choice(DTYPES),
    default=DTYPES[0],
    help="Of a SavedModel's encoder: its matrices and their products.",
)
@click.option("--overwrite", is_flag=True, help="Replace this version or folder; a server keeps what it has loaded.")
def export(model: str, out: str, format: str, version: int | None, overwrite: bool, dtype: str, **options: Any) -> None:
    """Write a SavedModel from text to embeddings, or another format, and check it by loading it again.

    \b
    bert-flow export --model runs/stsb_flow --out exported/stsb --normalize
    bash run_scripts/serve.sh exported/stsb
    bert-flow export --model runs/stsb_flow --out exported/st --format sentence-transformers

    The SavedModel holds tokenizer, encoder and flow. Signatures: serving_default (sentences to embedding), similarity
    (sentence_a and sentence_b to cosine), tokens (an encoder's inputs to embedding), pooled (sentences to the embedding
    before the flow).
    """
    check_model(model)
    options["overwrite"] = overwrite
    kind = FORMATS[format].folder
    if kind is None:
        own(out, f"--out={out}")
        version_folder(out, version, overwrite, flag=f"--out={out}")
        options |= {"version": version, "dtype": dtype}
    else:
        for flag, found in (("--version", version), ("--dtype", dtype if dtype != DTYPES[0] else None)):
            if found is not None:
                raise UserError(f"{flag}: found {found} with --format {format}, expected it with savedmodel alone")
        check_format(format)
        own_folder(out, kind, overwrite=overwrite)
    check_model_folder(model)
    # TensorFlow takes seconds to load, and a refusal needs none of it.
    from bert_flow_tf.api import BertFlow

    exported = BertFlow.from_pretrained(model).export(out, format=format, **options)
    checked = "not checked: onnxruntime is not installed"
    if exported.max_difference is not None:
        what = "the flow, read again" if format == "sentence-transformers" else "reloaded"
        checked = f"{what}: max difference {exported.max_difference:.1e}, values up to {exported.max_value:.1e}"
    if dtype != DTYPES[0]:
        checked += f", smallest cosine {exported.min_cosine:.4f}"
    if kind is None:
        click.echo(f"SavedModel written: {out}/{exported.path.name} ({checked})")
    else:
        of_flow = exported.flow_bytes and f", of which the flow {exported.flow_bytes / 1e6:,.1f} MB"
        click.echo(f"{format} written: {out} ({exported.size / 1e6:,.1f} MB{of_flow or ''}; {checked})")
