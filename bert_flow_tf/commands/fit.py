"""`bert-flow fit`: learn a flow on your sentences."""

from collections.abc import Iterator
from typing import Any

import click

from bert_flow_tf.commands import options as opt
from bert_flow_tf.commands.outputs import locked_folder
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.reading import reading
from bert_flow_tf.files.sentence_files import read_sentences
from bert_flow_tf.model.saved_model import SAVED_MODEL
from bert_flow_tf.runs.settings import FitSettings
from bert_flow_tf.scale.shards import Parts


@click.command(epilog="\b\nbert-flow fit --bert_hub demo --pooling cls --input sentences.txt --out my_model")
@opt.model_options("bert_hub")
@opt.sentence_options(required=False)
@click.option("--embeddings", metavar="DIR", help="Folder that encode-folder wrote.")
@click.option("--out", required=True, metavar="DIR", help="Folder for the model.")
@click.option("--pairs", metavar="FILE.tsv", help="Labelled pairs to judge by: two sentences and a score per line.")
@opt.setting_options(FitSettings)
@click.option("--overwrite", is_flag=True, help="Replace an existing saved model.")
def fit(
    model: opt.ModelOptions,
    sentences: Iterator[str] | None,
    embeddings: str | None,
    out: str,
    pairs: str | None,
    settings: FitSettings,
    overwrite: bool,
) -> None:
    """Learn a flow on sentences and save it with its encoder.

    The encoder does not change. If the sentences do not fit into memory, pass --embeddings, a folder that `bert-flow
    encode-folder --bert_hub …` wrote.
    """
    opt.check_one_of({"input": sentences, "embeddings": embeddings})
    arguments: dict[str, Any] = {**vars(settings), "pairs": None}
    if embeddings:
        if settings.method != "flow":
            raise UserError(f"--method: found {settings.method} with --embeddings, expected flow")
        del arguments["method"], arguments["dev_fraction"]
    path = locked_folder(out, SAVED_MODEL, overwrite=overwrite)
    given = list(sentences or ())
    texts = [sentence for sentence in given if sentence.strip()]
    if pairs:
        rows = list(read_sentences(pairs, file_format="tsv", columns=["1", "2", "3"]))
        with reading(pairs, "two sentences and a number in each line"):
            arguments["pairs"] = [row[0] for row in rows], [row[1] for row in rows], [float(row[2]) for row in rows]
    count = Parts(embeddings).rows if embeddings else len(texts)
    if count < settings.batch_size:
        raise UserError(f"--train_batch_size: found {settings.batch_size}, expected at most the {count} sentences")
    if empty := len(given) - len(texts):
        click.echo(f"empty sentences, skipped: {empty:,}", err=True)
    loaded = model.load()
    record = loaded.source.record
    if record.kind == "Hugging Face" and record.pooling:
        # Only a sentence-transformers folder has its own pooling.
        click.echo(
            "this encoder was trained for cosine similarity; a flow often lowers its scores (docs/witness.md)", err=True
        )
    loaded.fit_dataset(embeddings, **arguments) if embeddings else loaded.fit(texts, **arguments)
    loaded.save(path, overwrite=overwrite)
    assert loaded.record.flow is not None and loaded.history_ is not None  # `fit` has set both
    if measures := str(loaded.history_):
        click.echo(measures)
    learned = loaded.record.flow.training.settings
    training = f"{learned['steps']} steps" if "steps" in learned else settings.method
    click.echo(f"model written: {out} ({count} sentences, {training})")
