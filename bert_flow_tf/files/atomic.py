"""Write files and folders whole or not at all, by one process at a time, and check beforehand that they may be written.

Beside a path NAME, in the same folder, are while it is written: its lock `.NAME.lock`, its temporary file or folder
`.NAME.tmp`, and, for a moment, the folder that it replaces, `.NAME.replaced`. A link of any of these names is replaced
or an error: nothing is written through it.
"""

import contextlib
import dataclasses
import fnmatch
import logging
import os
import pathlib
import shutil
from collections.abc import Callable, Collection, Iterator

from filelock import FileLock, Timeout

from bert_flow_tf.errors import FULL, UserError
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


def is_temporary(name: str) -> bool:
    """True for the names that this module gives to what will be removed."""
    return name.startswith(".") and name.endswith((".lock", ".tmp", ".replaced"))


def remove(path: pathlib.Path) -> None:
    """Remove a file, a link or a whole folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: str | os.PathLike, *, wait: bool = False) -> Iterator[None]:
    """Lock a file or folder against other processes and threads; a thread may lock it again within the block.

    What a killed process left of the same path is removed first, and the folder that it was replacing restored. Folders
    above the path are made, and those that stay empty are removed again.

    Raises:
      UserError: another process has locked it and `wait` is false, or its folder cannot be written to.
    """
    refuse_address(path, str(path))
    path = _without_links(path)
    made, file = [folder for folder in path.parents if not os.path.exists(folder)], _beside(path, "lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Where no file can be made, filelock would wait for ever.
        os.close(os.open(file, os.O_CREAT | os.O_NOFOLLOW, 0o666))
        # One object for each path, which each thread locks for itself.
        lock = FileLock(file, is_singleton=True)
        lock.acquire(timeout=0)
    except Timeout as error:
        if not wait:
            raise UserError(f"{path}: another process is using it; wait for it to end") from error
        logging.info("Waiting for another process that is using %s", path)
        lock.acquire()
    except OSError as error:
        raise UserError(f"{path.parent}: cannot be written to ({error.strerror})") from error
    try:
        if lock.lock_counter == 1:
            _clean_up(path)
        yield
    finally:
        if lock.lock_counter == 1:
            file.unlink(missing_ok=True)
        lock.release()
        # Folders that are not empty stay.
        with contextlib.suppress(OSError):
            for folder in made:
                folder.rmdir()


def write_atomically(path: str | os.PathLike, text: str) -> None:
    """Write a text file in UTF-8, whole or not at all; see `new_file`."""
    with new_file(path) as part:
        part.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def new_file(path: str | os.PathLike, *, wait: bool = False, is_folder: bool = False) -> Iterator[pathlib.Path]:
    """Give an empty file, or folder, to fill; it gets the name `path` when the block succeeds and is removed otherwise.

    What has that name, or a link of that name, is replaced. Folders above it are made. With `wait` it waits for another
    writer.

    Raises:
      UserError: as `locked`, before the block; or the disk is full.
    """
    path = _without_links(path)
    with locked(path, wait=wait), full_disk_as_error(path):
        part = _beside(path, "tmp")
        try:
            part.mkdir() if is_folder else part.touch()
            yield part
            if is_folder and os.path.lexists(path):
                path.rename(_beside(path, "replaced"))
            part.rename(path)
        finally:
            _clean_up(path)


def new_folder(path: str | os.PathLike) -> contextlib.AbstractContextManager[pathlib.Path]:
    """`new_file` for a folder."""
    return new_file(path, is_folder=True)


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
    """Return the path of a folder that may be written; one that is there must be empty, or of this kind alone."""
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


def _without_links(path: str | os.PathLike) -> pathlib.Path:
    """The absolute path, with links followed in all of it but the last name: a result never goes through a link."""
    path = pathlib.Path(os.path.abspath(path))
    return path.parent.resolve() / path.name


def _beside(path: pathlib.Path, ending: str) -> pathlib.Path:
    return path.with_name(f".{path.name}.{ending}")


def _clean_up(path: pathlib.Path) -> None:
    """Restore the folder that was being replaced, if need be, and remove the other two beside the path."""
    old = _beside(path, "replaced")
    if os.path.lexists(old) and not os.path.lexists(path):
        old.rename(path)
    remove(old)
    remove(_beside(path, "tmp"))
