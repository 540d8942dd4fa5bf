"""What the commands write their results into: refused before any work where it may not be written, then there whole."""

import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import FolderKind, check_writable, output_file, output_folder
from bert_flow_tf.files.locks import locked

if TYPE_CHECKING:
    import numpy as np

    from bert_flow_tf.api import BertFlow
    from bert_flow_tf.runs.record import Result

    T = TypeVar("T", bound=Result)


def own(path: str | os.PathLike, flag: str) -> None:
    """Makes this command the only one that writes the file or folder, until it ends; `flag` is for errors, `--out=DIR`.

    Before it is asked what is there, so that nothing can come in between, and what a killed command left goes first.

    Raises:
      UserError: another process is writing there, or the place cannot be written to.
    """
    check_writable(path, flag)
    try:
        click.get_current_context().with_resource(locked(path))
    except UserError as error:
        raise UserError(f"{flag}: {error}") from error


def own_file(path: str | os.PathLike, *, overwrite: bool) -> pathlib.Path:
    """The path of a file that this command owns and may write; see `own` and `files.atomic.output_file`."""
    own(path, f"--out={path}")
    return output_file(path, overwrite=overwrite, flag=f"--out={path}")


def own_folder(path: str | os.PathLike, kind: FolderKind, *, overwrite: bool) -> pathlib.Path:
    """The path of a folder that this command owns and may write; see `own` and `files.atomic.output_folder`."""
    own(path, f"--out={path}")
    return output_folder(path, kind, overwrite=overwrite, flag=f"--out={path}")


def write_results(path: pathlib.Path, record: Any) -> None:
    """Writes the record as JSON, whole or not at all, and says so on stdout; makes the folders above it."""
    from bert_flow_tf.files.json_files import write_json

    write_json(path, record)
    click.echo(f"results written: {path}")


def results_folder(out: str, *, analysis: str, overwrite: bool) -> pathlib.Path:
    """Path of the folder `--out` for an analysis, which may replace one of the same kind; nothing is made yet.

    Raises:
      UserError: something is there that may not be replaced, or the place cannot be written to.
    """
    from bert_flow_tf.results.records import RESULTS_FILE, is_of_kind

    names = (RESULTS_FILE, "*.png", "*.svg")
    kind = FolderKind(f"an `analyze {analysis}` folder", RESULTS_FILE, names, lambda path: is_of_kind(path, analysis))
    return own_folder(out, kind, overwrite=overwrite)


def made_result(kind: type["T"], command: str, **measured: Any) -> "T":
    """A result of this kind, its parts from dicts, made by `bert-flow` with this command."""
    import msgspec

    from bert_flow_tf.runs.record import made_by

    values = {"kind": kind.__struct_config__.tag, "made_by": made_by(f"bert-flow {command}"), **measured}
    return msgspec.convert(msgspec.to_builtins(values), kind)


def pooled_embeddings(loaded: "BertFlow", sentences: Sequence[str], *, distinct: bool = False) -> "np.ndarray":
    """Embeddings, float32 [n, D], before the flow; one row for sentences of the same word pieces where `distinct`."""
    from bert_flow_tf.encoder import stream

    pieces = stream.tokenize(loaded.tokenizer, sentences, loaded.max_seq_length)
    if distinct:
        pieces, _ = stream.distinct(pieces)
    return stream.embed(loaded.encoder, loaded.tokenizer, pieces, loaded.max_seq_length)
