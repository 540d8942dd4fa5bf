"""`bert-flow fit`: a flow learned on one's own sentences, saved with its encoder."""

from typing import Any

import click

from bert_flow_tf.commands.options import (
    ENCODER_OPTIONS,
    ModelOptions,
    Number,
    SentenceInput,
    WholeNumber,
    flow_config_name,
    input_options,
    with_options,
)
from bert_flow_tf.commands.outputs import own_folder
from bert_flow_tf.errors import UserError
from bert_flow_tf.model.saved_model import SAVED_MODEL
from glow.config import DEFAULT_CONFIG

_POSITIVE = Number(0, min_open=True)


@click.command()
@click.option("--bert_hub", required=True, metavar="HANDLE|DIR", help="The encoder: demo, base, large, …")
@with_options(ENCODER_OPTIONS)
@input_options
@click.option("--out", required=True, metavar="DIR", help="Folder for the model.")
@click.option("--flow_model_config", callback=flow_config_name, default=DEFAULT_CONFIG, metavar="NAME|FILE")
@click.option("--num_train_epochs", type=_POSITIVE, default=1.0, metavar="X")
@click.option("--train_batch_size", type=WholeNumber(1), default=64, metavar="N", help="Sentences per step.")
@click.option("--flow_learning_rate", type=_POSITIVE, default=1e-3, metavar="X")
@click.option("--seed", type=WholeNumber(0), default=1234, metavar="N")
@click.option("--overwrite", is_flag=True, help="Replace an existing saved model.")
def fit(
    source: SentenceInput,
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

    The encoder does not change. The folder holds all that `encode`, `similarity` and `project` need, and a model card.
    """
    path = own_folder(out, SAVED_MODEL, overwrite=overwrite)
    sentences = list(source.read())
    # Before the encoder is loaded.
    if len(sentences) < train_batch_size:
        raise UserError(
            f"--input={source.path}: found {len(sentences)} sentences, expected at least {train_batch_size}, one step "
            "(--train_batch_size)"
        )
    model = ModelOptions(**encoder).load()
    model.fit(
        sentences,
        flow_model_config=flow_model_config,
        epochs=num_train_epochs,
        batch_size=train_batch_size,
        learning_rate=flow_learning_rate,
        seed=seed,
    )
    model.save(path, overwrite=overwrite)
    assert model.record.flow is not None  # `fit` has just learned it
    steps = model.record.flow.training.settings["steps"]
    click.echo(f"model written: {out} ({len(sentences)} sentences, {steps} steps)")
