"""Options of files of sentences, the same in every command."""

import dataclasses
from collections.abc import Sequence

import click

from bert_flow_tf.commands.command import option
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.settings import Settings, flag
from bert_flow_tf.tasks.sentence_files import (
    INPUT_FORMATS,
    SENTENCE,
    FormNames,
    TextFile,
    read_texts,
)

_NAMES = FormNames("--input_format", "--column", "--no_header")
# A command reads one file of sentences, or many.
INPUT = option(
    "--input", "input_path", metavar="FILE", help="Text, TSV, CSV, JSONL or Parquet; -: stdin"
)
INPUTS = option(
    "--input",
    "inputs",
    required=True,
    multiple=True,
    metavar="FILE",
    help="File or glob; repeatable.",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputForm(Settings):
    """The options that say how files of sentences look."""

    input_format: str | None = flag(
        None,
        "[default: by the ending]",
        needs=("input",),
        choices=tuple(sorted(set(INPUT_FORMATS.values()))),
    )
    column: str | None = flag(
        None, "Column.  [default: sentence]", metavar="NAME|N", needs=("input",)
    )
    no_header: bool = flag(False, "The first row of TSV or CSV is data.", needs=("input",))

    def file(self, path: str, kept: Sequence[str] = ()) -> TextFile:
        """Return a file of this form; `kept` are columns beside the sentences."""
        return TextFile(
            path=path,
            file_format=self.input_format or "",
            columns=(self.column or SENTENCE,),
            kept=tuple(kept),
            no_header=self.no_header,
            names=_NAMES,
        )

    def files(self, inputs: Sequence[str], keep: Sequence[str] | None) -> list[TextFile]:
        """Return the files of paths and patterns, with the columns to keep."""
        # Commands of one file load no code for folders.
        from bert_flow_tf.scale.shards import input_files

        return input_files(
            inputs,
            file_format=self.input_format,
            column=self.column,
            keep=keep,
            no_header=self.no_header,
            names=_NAMES,
        )

    def texts(self, path: str) -> list[str]:
        """Return a file's sentences without empty ones; say how many these are.

        Raises:
          UserError: the file has no sentences.
        """
        found = list(read_texts(self.file(path)))
        texts = [text for text in found if text.strip()]
        if not texts:
            raise UserError(f"--input={path}: found no sentences, expected at least one")
        if empty := len(found) - len(texts):
            click.echo(f"empty sentences, skipped: {empty:,}", err=True)
        return texts
