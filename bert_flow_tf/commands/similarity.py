"""`bert-flow similarity`: cosines of pairs of sentences."""

import itertools
from collections.abc import Iterator

import click
import numpy as np

from bert_flow_tf.commands.options import ModelOptions, model_options
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.sentence_files import FORMATS, read_sentences

_PART = 4096


@click.command()
@click.argument("sentences", nargs=-1, metavar="[A B]")
@model_options()
@click.option("--pairs", metavar="FILE", help="Pairs instead: .tsv, .csv, .jsonl, .parquet; - is standard input, TSV.")
@click.option("--input_format", type=click.Choice(sorted({*FORMATS.values()} - {"text"})), help="Of --pairs.")
@click.option(
    "--columns",
    metavar="A,B",
    help="Names; in TSV and CSV without a line of names, numbers: 1,2.  [default: sentence1,sentence2]",
)
def similarity(
    sentences: tuple[str, ...],
    model: ModelOptions,
    pairs: str | None,
    input_format: str | None,
    columns: str | None,
) -> None:
    """Print the cosine of two sentences, or of each pair of a file, one per line.

    \b
    bert-flow similarity --model my_model "A boat crosses the lake." "A ship sails."
    bert-flow similarity --bert_hub demo --pairs pairs.tsv --columns question1,question2
    """
    if bool(pairs) == bool(sentences) or len(sentences) not in (0, 2):
        raise UserError(f"sentences: found {len(sentences)}, expected 2, or --pairs")
    if pairs is None and (input_format or columns):
        raise UserError(
            f"--{'input_format' if input_format else 'columns'}: missing --pairs, the only input that it applies to"
        )
    rows = iter([list(sentences)]) if pairs is None else _pairs(pairs, input_format, columns)
    loaded = model.load()
    while part := list(itertools.islice(rows, _PART)):
        both = loaded.encode([sentence for pair in part for sentence in pair], normalize_embeddings=True)
        for cosine in np.sum(both[0::2] * both[1::2], axis=1):
            click.echo(f"{cosine:.6f}")


def _pairs(path: str, file_format: str | None, columns: str | None) -> Iterator[list[str]]:
    if file_format is None and (path == "-" or path.endswith(".tsv")):
        file_format = "tsv"
    if file_format is None and path.endswith(".txt"):
        raise UserError(f"--pairs={path}: found text, expected .tsv, .csv, .jsonl or .parquet, or --input_format")
    names = (columns or "sentence1,sentence2").split(",")
    if len(names) != 2 or not all(names):
        raise UserError(f"--columns={columns}: found {len(names)}, expected two with a comma between")
    return read_sentences(path, file_format=file_format, columns=names)
