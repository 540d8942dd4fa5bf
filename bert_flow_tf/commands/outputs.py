"""Lock and check outputs; print tables, and write results."""

import json
import os
import pathlib
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import click

from bert_flow_tf.common.atomic import FolderKind, locked, output_file, output_folder
from bert_flow_tf.common.errors import UserError, one_line
from bert_flow_tf.common.json_files import write_json
from bert_flow_tf.common.table import Table


def say(text: str, *, err: bool = False) -> None:
    """Print a line that holds names of files."""
    click.echo(one_line(text), err=err)


def lock_output(path: str | os.PathLike, flag: str) -> None:
    """Lock an output until the command ends; begin errors with `flag`."""
    try:
        click.get_current_context().with_resource(locked(path))
    except UserError as error:
        raise UserError(f"{flag}: {error}") from error


def locked_file(path: str | os.PathLike, *, overwrite: bool, flag: str = "out") -> pathlib.Path:
    """Lock and return the path of a file that may be written."""
    lock_output(path, f"--{flag}={path}")
    return output_file(path, overwrite=overwrite, flag=f"--{flag}={path}")


def locked_folder(
    path: str | os.PathLike, kind: FolderKind, *, overwrite: bool, flag: str = "out"
) -> pathlib.Path:
    """Lock and return the path of a folder that may be written."""
    lock_output(path, f"--{flag}={path}")
    return output_folder(path, kind, overwrite=overwrite, flag=f"--{flag}={path}")


def write_results(path: pathlib.Path, record: Any) -> None:
    """Write a record as JSON; print its path on stderr."""
    write_json(path, record)
    say(f"results written: {path}", err=True)


def print_table(table: Table, table_format: str, missing: str = "-") -> None:
    """Print a table; remarks go to stderr, except in text and JSON."""
    if table_format == "text":
        click.echo(table.to_text(missing, terminal_width()))
        return
    click.echo(table.to_format(table_format))
    if table_format != "json":
        _print_remarks(table)


def print_tables(tables: Sequence[Table], table_format: str) -> None:
    """Print tables, with empty lines between them; JSON is a list."""
    if table_format == "text":
        click.echo("\n\n".join(table.to_text(width=terminal_width()) for table in tables))
    elif table_format == "json":
        click.echo(json.dumps([table.to_json() for table in tables], ensure_ascii=False, indent=1))
    else:
        click.echo("\n\n".join(table.to_format(table_format) for table in tables))
        for table in tables:
            _print_remarks(table)


def _print_remarks(table: Table) -> None:
    for line in (table.title, *table.notes):
        if line:
            say(line, err=True)


def terminal_width() -> int | None:
    """Return the terminal's width; None if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
