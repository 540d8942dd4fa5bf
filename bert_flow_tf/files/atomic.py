"""Write files and folders whole or not at all, and check beforehand that they may be written."""

import contextlib
import dataclasses
import fnmatch
import os
import pathlib
from collections.abc import Callable, Collection, Iterator

from bert_flow_tf.errors import FULL, UserError
from bert_flow_tf.files.locks import beside, is_temporary, locked, output_path, remove
from bert_flow_tf.files.reading import refuse_address

# What errors of TensorFlow, and of numpy, say instead of a number.
_FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "File too large", "requested and")


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


def write_atomically(path: str | os.PathLike, text: str) -> None:
    """Write a text file in UTF-8, whole or not at all; see `new_file`."""
    with new_file(path) as part:
        part.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def new_file(path: str | os.PathLike, *, wait: bool = False) -> Iterator[pathlib.Path]:
    """Give an empty file to write, which gets the name `path` when the block succeeds and is removed otherwise.

    A file or link of that name is replaced. Folders above it are made. With `wait` it waits for another writer.

    Raises:
      UserError: as `locked`, before the block; or the disk is full.
    """
    path = output_path(path)
    with locked(path, wait=wait), full_disk_as_error(path):
        part = beside(path, "tmp")
        try:
            part.touch()
            yield part
            part.replace(path)
        finally:
            remove(part)


@contextlib.contextmanager
def new_folder(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """As `new_file`, of a folder to fill; a folder or link of that name is replaced."""
    path = output_path(path)
    with locked(path), full_disk_as_error(path):
        part, old = beside(path, "tmp"), beside(path, "replaced")
        try:
            part.mkdir()
            yield part
            if os.path.lexists(path):
                path.rename(old)
            part.rename(path)
        finally:
            if os.path.lexists(old) and not os.path.lexists(path):
                old.rename(path)
            remove(part)
            remove(old)


@contextlib.contextmanager
def new_output(path: str | os.PathLike, kind: FolderKind, *, overwrite: bool) -> Iterator[pathlib.Path]:
    """Give a `new_folder` that replaces what `output_folder` allows, under one lock."""
    with locked(path), new_folder(output_folder(path, kind, overwrite=overwrite)) as folder:
        yield folder


@contextlib.contextmanager
def full_disk_as_error(path: pathlib.Path) -> Iterator[None]:
    """Turn what Python and libraries raise on a full disk into a `UserError` that names `path`."""
    try:
        yield
    except Exception as error:
        if getattr(error, "errno", None) in FULL or any(text in str(error) for text in _FULL_TEXTS):
            raise UserError(f"{path}: no space left on the disk, or a quota is reached") from error
        raise


def output_file(path: str | os.PathLike, *, overwrite: bool, flag: str | None = None) -> pathlib.Path:
    """Return the path of a file that may be written; `flag` is what a command calls it, `--out=FILE`, for errors.

    Raises:
      UserError: a file is there that may not be replaced, or a folder; or the path cannot be written.
    """
    path, name = pathlib.Path(path), flag or path
    if path.exists() and not path.is_file():
        raise UserError(f"{name}: found a {'folder' if path.is_dir() else 'device'}, expected a file's name")
    if os.path.lexists(path) and not overwrite:
        raise UserError(f"{name}: exists, expected a new file, or {'--overwrite' if flag else 'overwrite=True'}")
    check_writable(path, flag)
    return path


def output_folder(
    path: str | os.PathLike, kind: FolderKind, *, overwrite: bool, flag: str | None = None
) -> pathlib.Path:
    """As `output_file`, of a folder: to be replaced, what is there must be empty or of this kind and nothing else."""
    path, name = pathlib.Path(path), flag or path
    if os.path.lexists(path):
        if not path.is_dir():
            raise UserError(f"{name}: found a file, expected a folder's name")
        if not overwrite:
            raise UserError(f"{name}: exists, expected a new folder, or {'--overwrite' if flag else 'overwrite=True'}")
        entries = sorted(entry.name for entry in path.iterdir() if not is_temporary(entry.name))
        if entries and not (kind.marker in entries and kind.is_marker(path / kind.marker)):
            raise UserError(f"{name}: holds no {kind.marker} of {kind.what}, expected {kind.what} to replace")
        for entry in entries:
            if not any(fnmatch.fnmatchcase(entry, pattern) for pattern in kind.names):
                raise UserError(f"{name}: holds {entry} beside {kind.what}, expected nothing else to replace")
    check_writable(path, flag)
    return path


def check_writable(path: str | os.PathLike, flag: str | None = None) -> None:
    """Raise `UserError`, beginning with the flag or path, unless the nearest folder above the path is writable."""
    refuse_address(path, flag or str(path))
    folder = next(above for above in pathlib.Path(path).absolute().parents if above.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UserError(f"{flag or path}: {folder} cannot be written to, expected a folder that can")
