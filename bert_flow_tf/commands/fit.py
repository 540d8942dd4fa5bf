"""`bert-flow fit`: learn a flow on your sentences."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from bert_flow_tf.calibration.methods import find_method
from bert_flow_tf.calibration.settings import CALIBRATION_FOLDER, FitSettings
from bert_flow_tf.commands import options as opt
from bert_flow_tf.commands.outputs import locked_folder, say
from bert_flow_tf.commands.pictures import Plot, plot_options
from bert_flow_tf.common.embedding_files import open_array
from bert_flow_tf.common.errors import ArgumentError, UserError, check_installed
from bert_flow_tf.model.saved_model import BERT_FLOW_FOLDER
from bert_flow_tf.scale.shards import Parts
from bert_flow_tf.tasks.labelled_pairs import read_labelled_pairs

if TYPE_CHECKING:
    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.calibration.judgement import Pairs
    from bert_flow_tf.common.records import CalibrationRecord
    from bert_flow_tf.model.any_encoder import Calibrated


@click.command(
    epilog="\b\nbert-flow fit --bert_hub demo --pooling cls --input sentences.txt --out my_model"
)
@opt.model_options("bert_hub", required=False)
@opt.SENTENCE_TRANSFORMER
@opt.sentence_options(required=False)
@click.option("--embeddings", metavar="PATH", help="Folder of encode-folder, or any .npy.")
@click.option("--out", required=True, metavar="DIR", help="Folder for the model.")
@opt.with_options(opt.PAIR_OPTIONS)
@opt.METRIC
@opt.setting_options(FitSettings)
@plot_options("cosines", "losses")
@click.option("--only_if_helps", is_flag=True, help="Else write nothing, status 1.")
@click.option("--overwrite", is_flag=True, help="Replace an existing saved model, or a picture.")
def fit(
    model: opt.ModelOptions,
    sentence_transformer: str | None,
    sentences: Iterator[str] | None,
    embeddings: str | None,
    out: str,
    pairs: str | None,
    pair_columns: str | None,
    metric: str | None,
    settings: FitSettings,
    plot: Plot | None,
    only_if_helps: bool,
    overwrite: bool,
) -> None:
    """Learn a flow on sentences and save it with its encoder.

    The encoder does not change; --pairs judges the flow. Without --bert_hub, only the calibration
    is saved.
    """
    opt.check_one_of({"input": sentences, "embeddings": embeddings})
    _check_encoder(model, sentence_transformer, sentences, embeddings, settings, pairs)
    if metric and pairs is None:
        raise ArgumentError(f"metric: found {metric} without --pairs, which it would measure")
    if plot and "losses" in (plot.names or ()) and not find_method(settings.method).has_flow:
        raise ArgumentError(f"panels: found losses, which {settings.method} does not have")
    is_calibration = bool(_is_array(embeddings) or sentence_transformer)
    kind = CALIBRATION_FOLDER if is_calibration else BERT_FLOW_FOLDER
    path = locked_folder(out, kind, overwrite=overwrite)
    given = list(sentences or ())
    texts = [sentence for sentence in given if sentence.strip()]
    count = _rows(embeddings) if embeddings else len(texts)
    if find_method(settings.method).has_flow and count < settings.batch_size:
        given_rows = (
            f"--embeddings: found {count} rows"
            if embeddings
            else f"--input: found {count} sentences"
        )
        raise UserError(
            f"{given_rows}, expected at least the --train_batch_size of {settings.batch_size}"
        )
    judged = None if pairs is None else read_labelled_pairs(pairs, pair_columns)
    if empty := len(given) - len(texts):
        click.echo(f"empty sentences, skipped: {empty:,}", err=True)
    learned: Calibrated | BertFlow
    if is_calibration:
        learned = _calibration(sentence_transformer, texts, embeddings, settings, judged, metric)
        record = learned.record
    else:
        learned, record = _model(model, texts, embeddings, settings, judged, metric)
    verdict = record.verdict
    if verdict:
        click.echo(verdict)
    if only_if_helps and not (verdict and verdict.claim == "helps"):
        click.echo(
            f"nothing written: the verdict is {verdict.claim if verdict else 'missing'}", err=True
        )
        sys.exit(1)
    learned.save(path, overwrite=overwrite)
    found = record.training.settings
    training = f"{found['steps']} steps" if "steps" in found else settings.method
    written = "calibration" if is_calibration else "model"
    say(f"{written} written: {out} ({count} sentences, {training})")
    if plot:
        _draw(plot, learned)


def _draw(plot: Plot, learned: "Calibrated | BertFlow") -> None:
    """Draw the cosines of held-out sentences, and the losses."""
    from bert_flow_tf.report import plots

    history = learned.history_
    assert history is not None  # `fit` sets it.
    pictures: dict[str, list[plots.Panel]] = {"cosines": [], "losses": []}
    counts, thresholds = plots.cosines_of(history)
    if counts:
        pictures["cosines"] = [
            plots.Panel(lambda axes: plots.cosines(counts, thresholds, ax=axes[0]))
        ]
    losses = history.recorded_losses
    if losses:
        pictures["losses"] = [plots.Panel(lambda axes: plots.losses({"": losses}, ax=axes[0]))]
    plot.write(pictures)


def _is_array(embeddings: str | None) -> bool:
    return embeddings is not None and embeddings.endswith(".npy")


def _rows(embeddings: str) -> int:
    """Return the number of embeddings in a file or folder."""
    return len(open_array(embeddings)) if _is_array(embeddings) else Parts(embeddings).rows


def _check_encoder(
    model: opt.ModelOptions,
    sentence_transformer: str | None,
    sentences: Iterator[str] | None,
    embeddings: str | None,
    settings: FitSettings,
    pairs: str | None,
) -> None:
    """Raise an error unless the encoder's options fit the input."""
    if _is_array(embeddings):
        if sentence_transformer or model.bert_hub or pairs:
            raise UserError(
                f"--embeddings={embeddings}: found an encoder or pairs as well, expected neither "
                "with .npy"
            )
        return
    opt.check_one_of({"bert_hub": model.bert_hub, "sentence_transformer": sentence_transformer})
    if embeddings and sentence_transformer:
        raise UserError(
            f"--embeddings={embeddings}: found --sentence_transformer, expected --bert_hub with a "
            "folder of encode-folder"
        )
    if embeddings and settings.method != "flow":
        raise UserError(
            f"--method: found {settings.method} with a folder of embeddings, expected flow"
        )
    if sentence_transformer:
        check_installed(
            "sentence_transformers", "sentence-transformers", "sentence_transformer", ArgumentError
        )


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
    encoder = opt.load_sentence_transformer(sentence_transformer)
    return calibrate(encoder, texts, pairs=pairs, metric=metric, **vars(settings))


def _model(
    options: opt.ModelOptions,
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
