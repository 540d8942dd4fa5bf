"""Whether an output may be written where it is asked for: refused in one line before any work is done.

Nothing is made or deleted here; `bert_flow_tf.files.atomic` writes.
"""

import dataclasses
import fnmatch
import os
import pathlib
import tempfile
from collections.abc import Callable, Collection

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.remote import refuse_address


@dataclasses.dataclass(frozen=True)
class FolderKind:
    """A kind of folder that is written and replaced as a whole, and how one is recognised.

    Attributes:
      what: with its article, for errors: "a saved model".
      marker: name of a file that every such folder holds, and of which `is_marker` is true.
      names: shell patterns of everything that such a folder may hold; anything else would be lost with it.
    """

    what: str
    marker: str
    names: Collection[str]
    is_marker: Callable[[pathlib.Path], bool] = pathlib.Path.is_file


def output_file(path: str | os.PathLike, *, overwrite: bool, flag: str | None = None) -> pathlib.Path:
    """The path of a file that may be written; `flag` is what a command calls it, `--out=FILE`, for errors.

    Raises:
      UserError: a file is there that may not be replaced, or a folder; or the place cannot be written to.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        raise UserError(f"{flag or path}: found a folder, expected a file's name")
    if path.exists() and not path.is_file():
        raise UserError(f"{flag or path}: found a device or a pipe, expected a file's name")
    if path.exists() and not overwrite:
        raise UserError(f"{flag or path}: exists, expected a new file, or {_overwrite(flag)}")
    check_writable(path, flag)
    return path


def output_folder(
    path: str | os.PathLike, kind: FolderKind, *, overwrite: bool, flag: str | None = None
) -> pathlib.Path:
    """The path of a folder of this kind that may be written; `flag` is what a command calls it, `--out=DIR`.

    What is there must be of the same kind, or empty, to be replaced.

    Raises:
      UserError: something is there that may not be replaced, or the place cannot be written to.
    """
    path = pathlib.Path(path)
    name = flag or path
    if path.exists():
        if not path.is_dir():
            raise UserError(f"{name}: found a file, expected a folder's name")
        if not overwrite:
            raise UserError(f"{name}: exists, expected a new folder, or {_overwrite(flag)}")
        entries = sorted(entry.name for entry in path.iterdir())
        if entries and not (kind.marker in entries and kind.is_marker(path / kind.marker)):
            raise UserError(f"{name}: holds no {kind.marker} of {kind.what}, expected {kind.what} to replace")
        for entry in entries:
            if not any(fnmatch.fnmatchcase(entry, pattern) for pattern in kind.names):
                raise UserError(f"{name}: holds {entry} beside {kind.what}, expected nothing else to replace")
    check_writable(path, flag)
    return path


def check_writable(path: str | os.PathLike, flag: str | None = None) -> None:
    """Raises `UserError`, beginning with the flag or path, unless the nearest folder above the path is writable."""
    refuse_address(path, flag or str(path))
    parents = pathlib.Path(path).absolute().parents
    folder = next((parent for parent in parents if parent.exists()), pathlib.Path("/"))
    # A try, since permissions say nothing of a disk that is full or mounted to be read only.
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UserError(
            f"{flag or path}: {folder} cannot be written to ({error.strerror}), expected one that can"
        ) from error


def _overwrite(flag: str | None) -> str:
    return "--overwrite" if flag else "overwrite=True"
