"""`bert-flow fit`: a flow learned on one's own sentences, saved with its encoder."""

from typing import TYPE_CHECKING, Any

import click

from bert_flow_tf.commands.options import (
    ENCODER_OPTIONS,
    FORMAT_OPTIONS,
    ModelOptions,
    Number,
    SentenceInput,
    WholeNumber,
    file_option,
    flow_config_name,
    with_options,
)
from bert_flow_tf.commands.outputs import own_folder
from bert_flow_tf.errors import UserError
from bert_flow_tf.model.saved_model import SAVED_MODEL
from bert_flow_tf.results.table import Entry, Table, number
from bert_flow_tf.scale.parts import Parts
from glow.config import DEFAULT_CONFIG

if TYPE_CHECKING:
    from bert_flow_tf.evaluation.change import Change

_POSITIVE = Number(0, min_open=True)
# Held-out sentences. A mean cosine over fewer moves by a tenth from draw to draw.
_FEW = 100


def change_table(change: "Change") -> Table:
    """What a flow changes, a measure per row, and below it whether there was anything to gain."""
    before, after = change.before, change.after
    rows: list[list[Entry]] = [
        ["mean cosine of random pairs", number(before.mean_cosine), number(after.mean_cosine)],
        ["top direction's share of variance", number(before.centred_top_share), number(after.centred_top_share)],
        ["effective rank", number(before.effective_rank, 1), number(after.effective_rank, 1)],
        ["bits per dimension", number(change.gaussian_bits_per_dim), number(change.flow_bits_per_dim)],
    ]
    notes = [
        "Bits: of the embeddings, under a Gaussian with diagonal covariance and under the flow.",
        "All of these describe the space. Whether similarities are better, bert-flow evaluate says, on scored pairs.",
    ]
    if before.embeddings < _FEW:
        notes.append(f"Fewer than {_FEW} sentences were held out: the next ones may give other figures.")
    if not change.is_worth_it:
        notes.append(
            "These embeddings lie in no cone: a flow has little to undo, and cosines may be better without it."
        )
    columns = (f"{before.embeddings:,} sentences that were held out", "before", "with the flow")
    return Table(columns, rows, notes=notes)


@click.command()
@click.option(
    "--bert_hub", required=True, metavar="HANDLE|DIR", help="Encoder: demo, base, large, a TF-Hub handle, a folder."
)
@with_options(ENCODER_OPTIONS)
@file_option(required=False)
@with_options(FORMAT_OPTIONS)
@click.option("--embeddings", metavar="DIR", help="In place of --input: what `encode --bert_hub … --out DIR` wrote.")
@click.option("--out", required=True, metavar="DIR", help="Folder for the model.")
@click.option(
    "--flow_model_config",
    callback=flow_config_name,
    default=DEFAULT_CONFIG,
    metavar="NAME|FILE",
    help="Configuration of the flow.",
)
@click.option("--num_train_epochs", type=_POSITIVE, metavar="X", help="Epochs.  [default: 1, or enough for 300 steps]")
@click.option("--train_batch_size", type=WholeNumber(1), default=64, metavar="N", help="Sentences per step.")
@click.option("--flow_learning_rate", type=_POSITIVE, default=1e-3, metavar="X", help="Learning rate, constant.")
@click.option("--seed", type=WholeNumber(0), default=1234, metavar="N", help="Seed of weights and order.")
@click.option("--overwrite", is_flag=True, help="Replace an existing saved model.")
def fit(
    input_file: str | None,
    input_format: str | None,
    column: str | None,
    embeddings: str | None,
    out: str,
    flow_model_config: str,
    num_train_epochs: float | None,
    train_batch_size: int,
    flow_learning_rate: float,
    seed: int,
    overwrite: bool,
    **encoder: Any,
) -> None:
    """Learn a flow on sentences, without labels, and save it with its encoder.

    \b
    bert-flow fit --bert_hub demo --input sentences.txt --out my_model
    bert-flow encode --model my_model --input sentences.txt --out embeddings.npy

    For more sentences than memory holds, compute embeddings first; `fit` reads them block by block (docs/scale.md):

    \b
    bert-flow encode --bert_hub demo --input 'crawl/*.parquet' --out embeddings
    bert-flow fit --bert_hub demo --embeddings embeddings --out my_model

    The encoder does not change. The folder holds all that `encode`, `similarity` and `project` need, and a model card.
    """
    if (input_file is None) == (embeddings is None):
        found = "none" if embeddings is None else "--embeddings, too"
        raise UserError(f"--input: found {found}, expected a file of sentences, or --embeddings=DIR")
    for name, value in (("input_format", input_format), ("column", column)):
        if value is not None and embeddings is not None:
            raise UserError(f"--{name}: found no --input, expected it, the only option that it applies to")
    path = own_folder(out, SAVED_MODEL, overwrite=overwrite)
    # Before the encoder is loaded.
    if embeddings is not None:
        source, count = f"--embeddings={embeddings}", Parts(embeddings).rows
    else:
        assert input_file is not None  # one of the two
        sentences = list(SentenceInput(input_file, input_format, column).read())
        source, count = f"--input={input_file}", len(sentences)
    if count < train_batch_size:
        raise UserError(
            f"{source}: found {count} sentences, expected at least {train_batch_size}, one step (--train_batch_size)"
        )
    model = ModelOptions(**encoder).load()
    settings: dict[str, Any] = {
        "flow_model_config": flow_model_config,
        "epochs": num_train_epochs,
        "batch_size": train_batch_size,
        "learning_rate": flow_learning_rate,
        "seed": seed,
    }
    if embeddings is not None:
        model.fit_dataset(embeddings, **settings)
    else:
        model.fit(sentences, **settings)
    model.save(path, overwrite=overwrite)
    assert model.record.flow is not None and model.history_ is not None  # `fit` has just learned it
    learned = model.record.flow.training.settings
    steps, epochs = learned["steps"], learned["epochs"]
    if num_train_epochs is None and epochs != 1:
        click.echo(f"{epochs:g} epochs, so that a flow of so few sentences learns long enough (--num_train_epochs)")
    if model.history_.change is not None:
        click.echo(change_table(model.history_.change).to_text())
    click.echo(f"model written: {out} ({count} sentences, {steps} steps)")
