"""`bert-flow similarity`: cosines of pairs of sentences."""

import itertools

import click
import numpy as np

from bert_flow_tf.commands.options import ModelOptions, model_options
from bert_flow_tf.files.sentence_files import STDIN, read_sentences

_PART = 4096


@click.command()
@click.argument("sentences", nargs=-1, metavar="[A B]")
@model_options()
@click.option("--pairs", metavar="FILE", help="Pairs instead: .tsv, .csv, .jsonl, .parquet; - is standard input, TSV.")
@click.option("--columns", default="sentence1,sentence2", metavar="A,B", help="Of --pairs: names, or numbers: 1,2.")
def similarity(sentences: tuple[str, ...], model: ModelOptions, pairs: str | None, columns: str) -> None:
    """Print the cosine of two sentences, or of each pair of a file, one per line.

    \b
    bert-flow similarity --model my_model "A boat crosses the lake." "A ship sails."
    bert-flow similarity --bert_hub demo --pairs pairs.tsv --columns question1,question2
    """
    if len(sentences) != (0 if pairs else 2):
        raise click.UsageError(f"found {len(sentences)} sentences, expected 2, or --pairs")
    names = columns.split(",")
    if len(names) != 2 or not all(names):
        raise click.BadParameter("expected two names with a comma between", param_hint="--columns")
    rows = iter([list(sentences)])
    if pairs:
        rows = read_sentences(pairs, file_format="tsv" if pairs == STDIN else None, columns=names)
    loaded = model.load()
    while part := list(itertools.islice(rows, _PART)):
        both = loaded.encode([sentence for pair in part for sentence in pair], normalize_embeddings=True)
        for cosine in np.sum(both[0::2] * both[1::2], axis=1):
            click.echo(f"{cosine:.6f}")
