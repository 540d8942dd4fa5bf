"""`bert-flow fit`: learn a flow on your sentences."""

from collections.abc import Iterator
from typing import Any

import click

from bert_flow_tf.commands import options as opt
from bert_flow_tf.commands.outputs import locked_folder
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.methods import check_method
from bert_flow_tf.files.reading import reading
from bert_flow_tf.files.sentence_files import read_sentences
from bert_flow_tf.model.saved_model import SAVED_MODEL
from bert_flow_tf.scale.shards import Parts


@click.command(epilog="\b\nbert-flow fit --bert_hub demo --pooling cls --input sentences.txt --out my_model")
@opt.model_options("bert_hub")
@opt.sentence_options(required=False)
@click.option("--embeddings", metavar="DIR", help="Folder that encode-folder wrote.")
@click.option("--out", required=True, metavar="DIR", help="Folder for the model.")
@click.option("--method", default="flow", metavar="NAME", help="flow, whitening[-D], sn, natsv-K or sn+natsv-K.")
@click.option("--pairs", metavar="FILE.tsv", help="Labelled pairs to judge by: two sentences and a score per line.")
@opt.FLOW_OPTION
@click.option("--num_train_epochs", "epochs", type=opt.POSITIVE, metavar="X", help="[default: 1, or for 300 steps]")
@click.option("--train_batch_size", "batch_size", type=opt.COUNT, default=64, metavar="N", help="Sentences per step.")
@click.option(
    "--flow_learning_rate", "learning_rate", type=opt.POSITIVE, default=1e-3, metavar="X", help="Learning rate."
)
@click.option("--seed", type=opt.WHOLE, default=1234, metavar="N", help="Seed of weights and order.")
@click.option("--overwrite", is_flag=True, help="Replace an existing saved model.")
def fit(
    model: opt.ModelOptions, sentences: Iterator[str] | None, embeddings: str | None, out: str, **settings: Any
) -> None:
    """Learn a flow on sentences and save it with its encoder.

    The encoder does not change. If the sentences do not fit into memory, pass --embeddings, a folder that `bert-flow
    encode-folder --bert_hub …` wrote.
    """
    opt.check_one_of({"input": sentences, "embeddings": embeddings})
    check_method(settings["method"])
    overwrite = settings.pop("overwrite")
    path = locked_folder(out, SAVED_MODEL, overwrite=overwrite)
    given = list(sentences or ())
    texts = [sentence for sentence in given if sentence.strip()]
    if pairs := settings["pairs"]:
        rows = list(read_sentences(pairs, file_format="tsv", columns=["1", "2", "3"]))
        with reading(pairs, "two sentences and a number in each line"):
            settings["pairs"] = [row[0] for row in rows], [row[1] for row in rows], [float(row[2]) for row in rows]
    count = Parts(embeddings).rows if embeddings else len(texts)
    if count < settings["batch_size"]:
        raise UserError(f"--train_batch_size: found {settings['batch_size']}, expected at most the {count} sentences")
    if empty := len(given) - len(texts):
        click.echo(f"empty sentences, skipped: {empty:,}", err=True)
    loaded = model.load()
    record = loaded.source.record
    if record.kind == "Hugging Face" and record.pooling:
        # Only a sentence-transformers folder has its own pooling.
        click.echo(
            "this encoder was trained for cosine similarity; a flow often lowers its scores (docs/witness.md)", err=True
        )
    loaded.fit_dataset(embeddings, **settings) if embeddings else loaded.fit(texts, **settings)
    loaded.save(path, overwrite=overwrite)
    assert loaded.record.flow is not None and loaded.history_ is not None  # `fit` has set both
    if measures := str(loaded.history_):
        click.echo(measures)
    learned = loaded.record.flow.training.settings
    training = f"{learned['steps']} steps" if "steps" in learned else settings["method"]
    click.echo(f"model written: {out} ({count} sentences, {training})")
