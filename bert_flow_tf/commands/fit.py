"""`bert-flow fit`: a flow learned on one's own sentences, saved with its encoder."""

from typing import Any

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
from bert_flow_tf.scale.parts import Parts
from glow.config import DEFAULT_CONFIG

_POSITIVE = Number(0, min_open=True)


@click.command()
@click.option("--bert_hub", required=True, metavar="HANDLE|DIR", help="The encoder: demo, base, large, …")
@with_options(ENCODER_OPTIONS)
@file_option(required=False)
@with_options(FORMAT_OPTIONS)
@click.option("--embeddings", metavar="DIR", help="In place of --input: what `encode --bert_hub … --out DIR` wrote.")
@click.option("--out", required=True, metavar="DIR", help="Folder for the model.")
@click.option("--flow_model_config", callback=flow_config_name, default=DEFAULT_CONFIG, metavar="NAME|FILE")
@click.option("--num_train_epochs", type=_POSITIVE, default=1.0, metavar="X")
@click.option("--train_batch_size", type=WholeNumber(1), default=64, metavar="N", help="Sentences per step.")
@click.option("--flow_learning_rate", type=_POSITIVE, default=1e-3, metavar="X")
@click.option("--seed", type=WholeNumber(0), default=1234, metavar="N")
@click.option("--overwrite", is_flag=True, help="Replace an existing saved model.")
def fit(
    input_file: str | None,
    input_format: str | None,
    column: str | None,
    embeddings: str | None,
    out: str,
    flow_model_config: str,
    num_train_epochs: float,
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

    Of more sentences than memory holds, embeddings are computed first, then read block by block (docs/scale.md):

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
    assert model.record.flow is not None  # `fit` has just learned it
    steps = model.record.flow.training.settings["steps"]
    click.echo(f"model written: {out} ({count} sentences, {steps} steps)")
