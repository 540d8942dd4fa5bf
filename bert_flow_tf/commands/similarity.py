"""`bert-flow similarity`: the cosine of two sentences, or of pairs."""

import itertools
from collections.abc import Iterator, Sequence

import click
import numpy as np

from bert_flow_tf.commands.command import command, option, setting_options
from bert_flow_tf.commands.model_options import EncodingOptions
from bert_flow_tf.tasks.sentence_files import PAIR, STDIN, FormNames, TextFile, read_tables

_NAMES = FormNames(column="--columns", no_header="--no_header")


@command(
    epilog='\b\nbert-flow similarity --model my_model "A boat crosses the lake." "A ship sails."',
    one_of=[("model", "bert_hub")],
)
@click.argument("sentences", nargs=-1, metavar="[A B]")
@setting_options(EncodingOptions, name="model")
@option("--pairs", metavar="FILE", help="File of pairs; -: TSV from stdin")
@option(
    "--columns",
    default=",".join(PAIR[:2]),
    metavar="A,B",
    needs=("pairs",),
    help="Columns of --pairs by name or number.",
)
@option("--no_header", is_flag=True, needs=("pairs",), help="The first row of --pairs is data.")
def similarity(
    sentences: tuple[str, ...],
    model: EncodingOptions,
    pairs: str | None,
    columns: str,
    no_header: bool,
) -> None:
    """Print the cosine of two sentences, or of pairs in a file.

    A flow moves cosines towards 0, so a threshold that was chosen without a flow does not apply.
    """
    if len(sentences) != (0 if pairs else 2):
        raise click.UsageError(f"found {len(sentences)} sentences, expected 2, or --pairs")
    names = columns.split(",")
    if len(names) != 2 or not all(names):
        raise click.BadParameter("expected two names, separated by a comma", param_hint="--columns")
    parts = _pairs(pairs, names, no_header=no_header) if pairs else iter([[sentences]])
    # A mistake in the file is found before the model loads.
    first = next(parts, [])
    loaded = model.open()
    for part in itertools.chain([first], parts):
        both = loaded.encode(
            [sentence for pair in part for sentence in pair], normalize_embeddings=True
        )
        for cosine in np.sum(both[0::2] * both[1::2], axis=1):
            click.echo(f"{cosine:.6f}")


def _pairs(
    path: str, names: Sequence[str], *, no_header: bool
) -> Iterator[Sequence[tuple[str, ...]]]:
    """Yield parts of a file's pairs."""
    file = TextFile(
        path=path,
        file_format="tsv" if path == STDIN else "",
        columns=tuple(names),
        no_header=no_header,
        names=_NAMES,
    )
    for table in read_tables(file):
        yield list(zip(*(table[name].to_pylist() for name in names), strict=True))
