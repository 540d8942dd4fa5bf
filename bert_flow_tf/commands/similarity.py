"""`bert-flow similarity`: cosines of pairs of sentences."""

import itertools

import click
import numpy as np

from bert_flow_tf.commands.sentence_model import check_model_options, load_model, sentence_model_options
from bert_flow_tf.errors import UserError
from bert_flow_tf.sentence_files import FORMATS, read_sentences

_PART = 4096


@click.command()
@click.argument("sentences", nargs=-1, metavar="[A B]")
@sentence_model_options
@click.option("--pairs", metavar="FILE", help="Pairs instead: .tsv, .jsonl, .parquet; - is standard input, TSV.")
@click.option("--input_format", type=click.Choice(sorted({*FORMATS.values()} - {"text"})), help="Of --pairs.")
@click.option(
    "--columns",
    metavar="A,B",
    help="Names, or numbers of a TSV file without a line of names.  [default: 1,2 for TSV, else sentence1,sentence2]",
)
def similarity(sentences, pairs, input_format, columns, **options):
    """Print the cosine of two sentences, or of each pair of a file, one a line.

    \b
    bert-flow similarity --model my_model "A boat crosses the lake." "A ship sails."
    bert-flow similarity --bert_hub demo --pairs pairs.tsv --columns sentence1,sentence2
    """
    check_model_options(**options)
    if bool(pairs) == bool(sentences) or len(sentences) not in (0, 2):
        raise UserError(f"similarity: found {len(sentences)} sentences, expected two, or --pairs")
    if pairs is None and (input_format or columns):
        raise UserError(f"--{'input_format' if input_format else 'columns'}: found no --pairs, which it belongs to")
    rows = iter([list(sentences)]) if sentences else _pairs(pairs, input_format, columns)
    model = load_model(**options)
    while part := list(itertools.islice(rows, _PART)):
        both = model.encode([sentence for pair in part for sentence in pair], normalize_embeddings=True)
        for cosine in np.sum(both[0::2] * both[1::2], axis=1):
            click.echo(f"{cosine:.6f}")


def _pairs(path, file_format, columns):
    if file_format is None and (path == "-" or path.endswith(".tsv")):
        file_format = "tsv"
    if file_format is None and path.endswith(".txt"):
        raise UserError(f"--pairs={path}: found text, expected .tsv, .jsonl or .parquet, or --input_format")
    default = "1,2" if file_format == "tsv" else "sentence1,sentence2"
    names = (columns or default).split(",")
    if len(names) != 2 or not all(names):
        raise UserError(f"--columns={columns}: found {len(names)}, expected two with a comma between")
    return read_sentences(path, file_format=file_format, columns=names)
