"""`bert-flow fit`: a flow learned on one's own sentences, saved with its encoder."""

from collections.abc import Iterator
from typing import Any

import click

from bert_flow_tf.commands import options as opt
from bert_flow_tf.commands.outputs import own_folder
from bert_flow_tf.errors import UserError
from bert_flow_tf.model.saved_model import SAVED_MODEL
from bert_flow_tf.scale.shards import Parts


@click.command(epilog="\b\nbert-flow fit --bert_hub demo --input sentences.txt --out my_model")
@opt.model_options("bert_hub")
@opt.sentence_options(required=False)
@click.option("--embeddings", metavar="DIR", help="Folder of encode-folder, instead of --input.")
@click.option("--out", required=True, metavar="DIR", help="Folder for the model.")
@opt.FLOW_OPTION
@click.option("--num_train_epochs", "epochs", type=opt.POSITIVE, metavar="X", help="[default: 1, or for 300 steps]")
@click.option("--train_batch_size", "batch_size", type=opt.COUNT, default=64, metavar="N", help="Sentences per step.")
@click.option("--flow_learning_rate", "learning_rate", type=opt.POSITIVE, default=1e-3, metavar="X", help="Constant.")
@click.option("--seed", type=opt.WHOLE, default=1234, metavar="N", help="Seed of weights and order.")
@click.option("--overwrite", is_flag=True, help="Replace an existing saved model.")
def fit(
    model: opt.ModelOptions, sentences: Iterator[str] | None, embeddings: str | None, out: str, **settings: Any
) -> None:
    """Learn a flow on sentences, without labels, and save it with its encoder.

    The encoder does not change. More sentences than memory holds come from --embeddings, which `bert-flow encode-folder
    --bert_hub …` wrote.
    """
    opt.check_one_of({"input": sentences, "embeddings": embeddings})
    overwrite = settings.pop("overwrite")
    path = own_folder(out, SAVED_MODEL, overwrite=overwrite)
    texts = list(sentences or ())
    count = Parts(embeddings).rows if embeddings else len(texts)
    if count < settings["batch_size"]:
        raise UserError(f"--train_batch_size: found {settings['batch_size']}, expected at most the {count} sentences")
    loaded = model.load()
    loaded.fit_dataset(embeddings, **settings) if embeddings else loaded.fit(texts, **settings)
    loaded.save(path, overwrite=overwrite)
    assert loaded.record.flow is not None and loaded.history_ is not None  # `fit` has just learned it
    learned = loaded.record.flow.training.settings
    if settings["epochs"] is None and learned["epochs"] != 1:
        click.echo(f"{learned['epochs']:g} epochs, as one would be fewer than 300 steps (--num_train_epochs)")
    if change := loaded.history_.change:
        click.echo(str(change))
        if not change.is_worth_it:
            click.echo("These embeddings lie in no cone: a flow has little to undo; cosines may be better without it.")
    click.echo(f"model written: {out} ({count} sentences, {learned['steps']} steps)")
