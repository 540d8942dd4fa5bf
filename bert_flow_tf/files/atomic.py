"""Files and folders that are written whole or not at all."""

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator

from bert_flow_tf.errors import UserError


def write_atomically(path: str | os.PathLike, text: str) -> None:
    """Writes a text file, whole or not at all; see `new_file`."""
    with new_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def new_file(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Gives an empty file to write, which gets the name `path` when the block ends well and is removed when not.

    A file of that name is replaced. Folders above it are made.

    Raises:
      UserError: the place cannot be written to; nothing of the block has run then.
    """
    path = pathlib.Path(path).absolute()
    make_directory(path.parent)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _not_writable(path, error) from error
    os.close(descriptor)
    try:
        yield pathlib.Path(name)
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        pathlib.Path(name).unlink(missing_ok=True)


def make_directory(path: str | os.PathLike) -> None:
    """Makes a directory and those above it, unless they exist.

    Raises:
      UserError: a file is in the way, or the place cannot be written to.
    """
    try:
        pathlib.Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be made ({error.strerror}), expected a place for a directory") from error


@contextlib.contextmanager
def new_folder(path: str | os.PathLike, *, replace: bool = True) -> Iterator[pathlib.Path]:
    """Gives an empty folder to fill, which gets the name `path` when the block ends well and is removed when not.

    Folders above it are made; if the block fails, they are removed again.

    Raises:
      UserError: the place cannot be written to; or the name was taken meanwhile, and `replace` is false.
    """
    path = pathlib.Path(path).absolute()
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    make_directory(path.parent)
    try:
        workspace = pathlib.Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise _not_writable(path, error) from error
    try:
        folder = workspace / "new"
        folder.mkdir()
        yield folder
        if path.exists() and not replace:
            raise UserError(f"{path}: was made by another process meanwhile, expected a new name")
        if path.exists():
            path.rename(workspace / "old")
        folder.rename(path)
    finally:
        # If anything, an interruption too, came between the two renames, the old folder gets its name back.
        if (workspace / "old").exists() and not path.exists():
            (workspace / "old").rename(path)
        shutil.rmtree(workspace)
        for folder in made:
            if any(folder.iterdir()):
                break
            folder.rmdir()


def _not_writable(path: pathlib.Path, error: OSError) -> UserError:
    return UserError(f"{path.parent}: cannot be written to ({error.strerror}), expected a place for {path.name}")
