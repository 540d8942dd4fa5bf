"""`bert-flow fit`: learn a flow on your sentences."""

import sys
from typing import TYPE_CHECKING

import click

from bert_flow_tf.calibration.methods import find_method
from bert_flow_tf.calibration.settings import CALIBRATION_FOLDER, FitSettings
from bert_flow_tf.commands.command import (
    check_one_of,
    command,
    option,
    refuse,
    setting_options,
)
from bert_flow_tf.commands.input_options import INPUT, InputForm
from bert_flow_tf.commands.model_options import (
    ENCODER,
    SENTENCE_TRANSFORMER,
    ModelOptions,
    check_sentence_transformers,
    load_sentence_transformer,
)
from bert_flow_tf.commands.outputs import locked_folder, say
from bert_flow_tf.commands.pair_options import PairOptions, metric_option
from bert_flow_tf.commands.pictures import PLOT, locked_plot, panels_option
from bert_flow_tf.common.embedding_files import open_array
from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.model.saved_model import BERT_FLOW_FOLDER

if TYPE_CHECKING:
    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.calibration.judgement import Pairs
    from bert_flow_tf.common.records import CalibrationRecord, Verdict
    from bert_flow_tf.model.any_encoder import Calibrated


@command(
    epilog="\b\nbert-flow fit --bert_hub demo --pooling cls --input sentences.txt --out my_model",
    one_of=[("input", "embeddings")],
    excludes={"embeddings": ("sentence_transformer",)},
)
@setting_options(ModelOptions, *ENCODER, name="model")
@SENTENCE_TRANSFORMER
@INPUT
@setting_options(InputForm, name="form")
@option("--embeddings", metavar="PATH", help="Folder of encode-folder, or any .npy.")
@option("--out", required=True, metavar="DIR", help="Folder for the model.")
@setting_options(PairOptions, name="pairs")
@metric_option()
@setting_options(FitSettings)
@PLOT
@panels_option("cosines", "losses")
@option("--only_if_helps", is_flag=True, help="Else write nothing, status 1.")
@option("--overwrite", is_flag=True, help="Replace an existing saved model, or a picture.")
def fit(
    model: ModelOptions,
    sentence_transformer: str | None,
    input_path: str | None,
    form: InputForm,
    embeddings: str | None,
    out: str,
    pairs: PairOptions,
    metric: str | None,
    settings: FitSettings,
    plot: str | None,
    panels: list[str] | None,
    only_if_helps: bool,
    overwrite: bool,
) -> None:
    """Learn a flow on sentences and save it with its encoder.

    The encoder does not change; --pairs judges the flow. Without --bert_hub, only the calibration
    is saved.
    """
    _check_options(embeddings, sentence_transformer, settings, panels)
    texts = [] if input_path is None else form.texts(input_path)
    is_calibration = bool(sentence_transformer) or _is_array(embeddings)
    picture = locked_plot(plot, panels, overwrite=overwrite)
    kind = CALIBRATION_FOLDER if is_calibration else BERT_FLOW_FOLDER
    path = locked_folder(out, kind, overwrite=overwrite)
    count = _count_rows(texts, embeddings, settings)
    judged = pairs.read()
    learned: Calibrated | BertFlow
    if is_calibration:
        learned = _calibration(sentence_transformer, texts, embeddings, settings, judged, metric)
        record = learned.record
    else:
        learned, record = _model(model, texts, embeddings, settings, judged, metric)
    _say_verdict(record.verdict, only_if_helps=only_if_helps)
    learned.save(path, overwrite=overwrite)
    found = record.training.settings
    training = f"{found['steps']} steps" if "steps" in found else settings.method
    written = "calibration" if is_calibration else "model"
    say(f"{written} written: {out} ({count} sentences, {training})")
    if picture:
        from bert_flow_tf.report.pictures import pictures_of_history

        assert learned.history_ is not None  # `fit` sets it.
        picture.write(pictures_of_history(learned.history_))


def _count_rows(texts: list[str], embeddings: str | None, settings: FitSettings) -> int:
    """Return the number of sentences or embeddings; check that it is enough."""
    if not embeddings:
        count = len(texts)
        given = f"--input: found {count} sentences"
    else:
        if _is_array(embeddings):
            count = len(open_array(embeddings))
        else:
            from bert_flow_tf.scale.shards import Parts

            count = len(Parts(embeddings))
        given = f"--embeddings: found {count} rows"
    if find_method(settings.method).has_flow and count < settings.batch_size:
        raise UserError(
            f"{given}, expected at least the --train_batch_size of {settings.batch_size}"
        )
    return count


def _say_verdict(verdict: "Verdict | None", *, only_if_helps: bool) -> None:
    """Print the verdict; with `only_if_helps`, exit if it is another one."""
    if verdict:
        click.echo(verdict)
    if only_if_helps and not (verdict and verdict.claim == "helps"):
        claim = verdict.claim if verdict else "missing"
        click.echo(f"nothing written: the verdict is {claim}", err=True)
        sys.exit(1)


def _is_array(embeddings: str | None) -> bool:
    return embeddings is not None and embeddings.endswith(".npy")


def _check_options(
    embeddings: str | None,
    sentence_transformer: str | None,
    settings: FitSettings,
    panels: list[str] | None,
) -> None:
    """Raise an error for options that do not belong together."""
    if _is_array(embeddings):
        refuse((*ENCODER, "pairs"), f"--embeddings={embeddings}, an array")
    else:
        check_one_of("bert_hub", "sentence_transformer")
    if sentence_transformer:
        check_sentence_transformers()
    if embeddings and not _is_array(embeddings) and settings.method != "flow":
        raise ArgumentError(
            f"method: found {settings.method} with a folder of embeddings, expected flow"
        )
    method = find_method(settings.method)
    settings.check_used([method])
    if panels and "losses" in panels and not method.has_flow:
        raise ArgumentError(f"panels: found losses, which {settings.method} does not have")


def _calibration(
    sentence_transformer: str | None,
    texts: list[str],
    embeddings: str | None,
    settings: FitSettings,
    pairs: "Pairs | None",
    metric: str | None,
) -> "Calibrated":
    """Learn a calibration of another library's encoder, or of an array."""
    from bert_flow_tf.model.any_encoder import calibrate, calibrate_array

    if not sentence_transformer:
        return calibrate_array(open_array(str(embeddings)), settings)
    encoder = load_sentence_transformer(sentence_transformer)
    return calibrate(encoder, texts, pairs=pairs, metric=metric, **vars(settings))


def _model(
    options: ModelOptions,
    texts: list[str],
    embeddings: str | None,
    settings: FitSettings,
    pairs: "Pairs | None",
    metric: str | None,
) -> "tuple[BertFlow, CalibrationRecord]":
    """Learn a model's flow; return the model and the flow's record."""
    learned = options.load()
    encoder = learned.source.record
    if encoder.kind == "Hugging Face" and encoder.pooling:
        # Only a sentence-transformers folder has its own pooling.
        trained = "this encoder was trained for cosine similarity"
        click.echo(f"{trained}; a flow often lowers its scores: see bert-flow compare", err=True)
    if embeddings:
        learned.fit_dataset(embeddings, settings, pairs=pairs, metric=metric)
    else:
        learned.fit(texts, pairs=pairs, metric=metric, **vars(settings))
    record = learned.record.flow
    assert record is not None  # `fit` sets it.
    return learned, record
