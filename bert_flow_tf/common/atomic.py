"""Write files and folders whole or not at all.

Three paths beside NAME are in use while it is written: the lock `.NAME.lock`, the new file or
folder `.NAME.tmp` and, briefly, the old folder `.NAME.replaced`. If these are links, they are not
followed.
"""

import contextlib
import fnmatch
import logging
import os
import pathlib
import shutil
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from filelock import FileLock, Timeout

from bert_flow_tf.common.errors import DISK_FULL_ERRNOS, UserError
from bert_flow_tf.common.reading import check_local

logger = logging.getLogger(__name__)

# TensorFlow's and numpy's errors have no errno, but contain one of these texts.
_FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "File too large", "requested and")


class FolderKind(NamedTuple):
    """A kind of folder that is written and replaced as a whole.

    Attributes:
      what: name with an article, for messages: "a saved model".
      marker: name of a file that identifies such a folder; `is_marker` must be true for its path.
      names: `fnmatch` patterns of all its files; a folder with any other file is not replaced.
    """

    what: str
    marker: str
    names: Collection[str]
    is_marker: Callable[[pathlib.Path], bool] = pathlib.Path.is_file


def is_temporary(name: str) -> bool:
    """True for this module's names of temporary files."""
    return name.startswith(".") and name.endswith((".lock", ".tmp", ".replaced"))


def remove(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: str | os.PathLike, *, wait: bool = False) -> Iterator[pathlib.Path]:
    """Lock a file or folder against other processes and threads.

    The block gets the absolute path, with links resolved except in its last name. A thread may
    lock it again within the block. Before the block, restore the folder that a killed
    process was replacing, and remove its temporary files. Create missing parent folders; remove
    them afterwards if they are empty.

    Raises:
      UserError: it is locked and `wait` is false, or its folder is not writable.
    """
    check_local(path, str(path))
    path = pathlib.Path(os.path.abspath(path))
    path = path.parent.resolve() / path.name
    missing_parents = [folder for folder in path.parents if not os.path.exists(folder)]
    lock = _acquired(path, wait=wait)
    try:
        if lock.lock_counter == 1:
            _clean_up(path)
            for old in path.glob(".*.lock") if path.is_dir() else ():
                # A killed process may have left it; a lock that somebody holds is not acquired.
                with contextlib.suppress(Timeout, OSError), FileLock(old, timeout=0):
                    old.unlink()
        yield path
    finally:
        if lock.lock_counter == 1:
            _beside(path, "lock").unlink(missing_ok=True)
        lock.release()
        # rmdir fails for folders that are not empty, so they stay.
        with contextlib.suppress(OSError):
            for folder in missing_parents:
                folder.rmdir()


def _acquired(path: pathlib.Path, *, wait: bool) -> FileLock:
    """Return the acquired lock beside a path, whose parent folders are created."""
    file = _beside(path, "lock")
    timeout = 0
    attempts = 100
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Create the file first, because filelock waits forever if it cannot create it.
            os.close(os.open(file, os.O_CREAT | os.O_NOFOLLOW, 0o666))
            # All threads get the same object; each of them must acquire its own lock.
            lock = FileLock(file, is_singleton=True)
            lock.acquire(timeout=timeout)
            return lock
        except Timeout as error:
            if not wait:
                raise UserError(
                    f"{path}: another process is using it; wait for it to end"
                ) from error
            logger.info("Waiting for another process that is using %s", path)
            timeout = -1
        except OSError as error:
            attempts -= 1
            # Another process may have ended and removed the parent folders that it had made.
            if not (isinstance(error, FileNotFoundError | FileExistsError) and attempts):
                raise UserError(f"{path.parent}: is not writable ({error.strerror})") from error


def write_atomically(path: str | os.PathLike, text: str) -> None:
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def new_file(
    path: str | os.PathLike, *, wait: bool = False, is_folder: bool = False
) -> Iterator[pathlib.Path]:
    """Yield a temporary path; rename it to `path` if the block succeeds.

    Replace an existing file or link; create parent folders. With `wait`, wait for another writer to
    finish.

    Raises:
      UserError: as `locked`, or the disk is full.
    """
    with locked(path, wait=wait) as path, full_disk_as_error(path):
        temporary = _beside(path, "tmp")
        try:
            temporary.mkdir() if is_folder else temporary.touch()
            mode = temporary.stat().st_mode
            yield temporary
            if is_folder:
                _give_modes(temporary, mode)
            if is_folder and os.path.lexists(path):
                path.rename(_beside(path, "replaced"))
            temporary.rename(path)
        finally:
            _clean_up(path)


def _give_modes(folder: pathlib.Path, mode: int) -> None:
    """Give the files of a new folder the umask's modes.

    Some writers, such as safetensors, let only their own user read a file; a server under another
    user could not read a copy of it.

    Args:
      mode: the mode of the folder, which the umask has limited.
    """
    for path in folder.rglob("*"):
        path.chmod(mode if path.is_dir() else mode & 0o666)


def new_folder(path: str | os.PathLike) -> contextlib.AbstractContextManager[pathlib.Path]:
    return new_file(path, is_folder=True)


@contextlib.contextmanager
def new_output(
    path: str | os.PathLike, kind: FolderKind, *, overwrite: bool
) -> Iterator[pathlib.Path]:
    """Yield a `new_folder` for a path that `output_folder` accepts."""
    with locked(path), new_folder(output_folder(path, kind, overwrite=overwrite)) as folder:
        yield folder


@contextlib.contextmanager
def full_disk_as_error(path: pathlib.Path) -> Iterator[None]:
    """Turn exceptions of a full disk into a `UserError` that names `path`."""
    try:
        yield
    except Exception as error:
        if getattr(error, "errno", None) in DISK_FULL_ERRNOS or any(
            text in str(error) for text in _FULL_TEXTS
        ):
            raise UserError(f"{path}: no space left on the disk, or a quota is reached") from error
        raise


def output_file(
    path: str | os.PathLike, *, overwrite: bool, flag: str | None = None
) -> pathlib.Path:
    """Return a file's path; raise `UserError` unless it is new or replaceable."""
    name = flag or path
    path = pathlib.Path(path)
    if path.exists() and not path.is_file():
        raise UserError(
            f"{name}: found a {'folder' if path.is_dir() else 'device'}, expected a file's name"
        )
    if os.path.lexists(path) and not overwrite:
        raise UserError(
            f"{name}: exists, expected a new file, or {'--overwrite' if flag else 'overwrite=True'}"
        )
    check_writable(path, flag)
    return path


def output_folder(
    path: str | os.PathLike, kind: FolderKind, *, overwrite: bool, flag: str | None = None
) -> pathlib.Path:
    """Return a folder's path; raise `UserError` unless it is new or replaceable."""
    name = flag or path
    path = pathlib.Path(path)
    if os.path.lexists(path):
        if not path.is_dir():
            raise UserError(f"{name}: found a file, expected a folder's name")
        if not overwrite:
            raise UserError(
                f"{name}: exists, expected a new folder, or "
                f"{'--overwrite' if flag else 'overwrite=True'}"
            )
        entries = sorted(entry.name for entry in path.iterdir() if not is_temporary(entry.name))
        if entries and not (kind.marker in entries and kind.is_marker(path / kind.marker)):
            raise UserError(f"{name}: holds no {kind.marker} of {kind.what}; choose another folder")
        for entry in entries:
            if not any(fnmatch.fnmatchcase(entry, pattern) for pattern in kind.names):
                raise UserError(
                    f"{name}: holds {entry}, which is not part of {kind.what}; choose another "
                    "folder"
                )
    check_writable(path, flag)
    return path


def check_writable(path: str | os.PathLike, flag: str | None = None) -> None:
    """Raise `UserError` unless the nearest existing parent folder is writable."""
    check_local(path, flag or str(path))
    folder = next(parent for parent in pathlib.Path(path).absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UserError(f"{flag or path}: {folder} is not a writable folder")


def _beside(path: pathlib.Path, ending: str) -> pathlib.Path:
    return path.with_name(f".{path.name}.{ending}")


def _clean_up(path: pathlib.Path) -> None:
    """Restore the folder being replaced, if needed; remove temporary files."""
    replaced = _beside(path, "replaced")
    if os.path.lexists(replaced) and not os.path.lexists(path):
        replaced.rename(path)
    remove(replaced)
    remove(_beside(path, "tmp"))
