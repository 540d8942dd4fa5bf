"""The option `--colour`, a column of the input for a picture."""

from collections.abc import Sequence
from typing import NamedTuple

from bert_flow_tf.commands.command import option
from bert_flow_tf.commands.options import InputOptions
from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.tasks.sentence_files import STDIN, input_format, read_tables
from bert_flow_tf.vectors.texts import BLOCK_ROWS


class Colours(NamedTuple):
    """The values of a column by sentence; the first of each counts."""

    column: str
    values: dict[str, object]

    def of(self, sentences: Sequence[str]) -> list[object]:
        """Return the values of sentences: numbers if all are, else texts."""
        found = [self.values[sentence] for sentence in sentences]
        try:
            return [float(str(one)) for one in found]
        except ValueError:
            return [str(one) for one in found]


COLOUR = option(
    "--colour",
    metavar="COLUMN",
    needs=("plot",),
    help="With --plot: column of --input to colour by.",
)


def read_colours(column: str | None, given: InputOptions) -> Colours | None:
    """Return the values of a column of `--input`; None without `--colour`."""
    if column is None:
        return None
    if given.path is None or given.path == STDIN:
        raise ArgumentError(f"colour: found {column} without a file, expected --input with a name")
    file_format = given.input_format or input_format(given.path)
    if file_format == "text":
        raise ArgumentError(f"colour: found {column} with a text file without columns")
    found: dict[str, object] = {}
    for sentences, kept in read_tables(
        given.path,
        file_format=file_format,
        column=given.column,
        kept=[column],
        rows=BLOCK_ROWS,
        no_header=given.no_header,
    ):
        for sentence, value in zip(sentences, kept.column(0).to_pylist(), strict=True):
            found.setdefault(sentence, value)
    return Colours(column, found)
