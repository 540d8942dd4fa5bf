"""Lock an output path; clean up after killed processes.

Beside a path NAME, in the same folder, are while it is written: its lock `.NAME.lock`, its temporary file or folder
`.NAME.tmp`, and, for a moment, the folder that it replaces, `.NAME.replaced`.
"""

import contextlib
import logging
import os
import pathlib
import shutil
from collections.abc import Iterator

from filelock import FileLock, Timeout

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.reading import refuse_address


def output_path(path: str | os.PathLike) -> pathlib.Path:
    """The absolute path, with links followed in all of it but the last name: a result never goes through a link."""
    path = pathlib.Path(os.path.abspath(path))
    return path.parent.resolve() / path.name


def beside(path: pathlib.Path, ending: str) -> pathlib.Path:
    """Return the path of one of these three: the ending is "lock", "tmp" or "replaced"."""
    return path.with_name(f".{path.name}.{ending}")


def is_temporary(name: str) -> bool:
    """True for the names that this module and `files.atomic` give to what will be removed."""
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
    path = output_path(path)
    made = [folder for folder in path.parents if not os.path.exists(folder)]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Where no file can be made, filelock would wait for ever.
        beside(path, "lock").touch()
        # One object for each path, which each thread locks for itself.
        lock = FileLock(beside(path, "lock"), is_singleton=True)
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
            old = beside(path, "replaced")
            if os.path.lexists(old) and not os.path.lexists(path):
                old.rename(path)
            remove(old)
            remove(beside(path, "tmp"))
        yield
    finally:
        if lock.lock_counter == 1:
            pathlib.Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()
        # Folders that are not empty stay.
        with contextlib.suppress(OSError):
            for folder in made:
                folder.rmdir()
