"""The option `--colour`, a column of the input for a picture."""

from collections.abc import Sequence
from typing import NamedTuple

from bert_flow_tf.commands.command import option
from bert_flow_tf.commands.input_options import InputForm
from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.tasks.sentence_files import STDIN, read_tables


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


def read_colours(column: str | None, path: str | None, form: InputForm) -> Colours | None:
    """Return the values of a column of `--input`; None without `--colour`."""
    if column is None:
        return None
    if path is None or path == STDIN:
        raise ArgumentError(f"colour: found {column} without a file, expected --input with a name")
    found: dict[str, object] = {}
    for table in read_tables(form.file(path, kept=[column])):
        sentences = table.column(0).to_pylist()
        for sentence, value in zip(sentences, table[column].to_pylist(), strict=True):
            found.setdefault(sentence, value)
    return Colours(column, found)
