"""Lock and check outputs, and write results."""

import os
import pathlib
from typing import Any

import click

from bert_flow_tf.common.atomic import FolderKind, locked, output_file, output_folder
from bert_flow_tf.common.errors import UserError, one_line


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
    # Commands that write no record need no msgspec types.
    from bert_flow_tf.common.json_files import write_json

    write_json(path, record)
    say(f"results written: {path}", err=True)
