"""The option `--colour`, a column of the input for a picture."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click

from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.tasks.sentence_files import input_format, read_tables
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


def colour_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--colour` before `sentence_options`; pass `colours` or None."""

    @functools.wraps(function)
    def with_colours(**values: Any) -> Any:
        column = values.pop("colour")
        colours = None
        if column is not None:
            path = values["path"]
            if path is None or path == "-" or values["plot_file"] is None:
                raise click.UsageError("--colour: expected --plot, and --input with a file's name")
            file_format = values["input_format"] or input_format(path)
            if file_format == "text":
                raise ArgumentError(f"colour: found {column} with a text file without columns")
            colours = Colours(column, _read(path, file_format, column, values))
        return function(colours=colours, **values)

    return click.option(
        "--colour", metavar="COLUMN", help="With --plot: column of --input to colour by."
    )(with_colours)


def _read(path: str, file_format: str, column: str, values: dict[str, Any]) -> dict[str, object]:
    found: dict[str, object] = {}
    for sentences, kept in read_tables(
        path,
        file_format=file_format,
        column=values["column"],
        kept=[column],
        rows=BLOCK_ROWS,
        no_header=values["no_header"],
    ):
        for sentence, value in zip(sentences, kept.column(0).to_pylist(), strict=True):
            found.setdefault(sentence, value)
    return found
