"""Files and folders that are there whole or not at all."""

import contextlib
import os
import pathlib
import shutil
import tempfile

from bert_flow_tf.errors import UserError


def write_atomically(path, text):
    """Writes a text file through a temporary sibling, so that it is there whole or not at all."""
    path = pathlib.Path(path)
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
    ) as f:
        f.write(text)
    os.chmod(f.name, 0o644)
    os.replace(f.name, path)


def make_directory(path):
    """Makes a directory and those above it, unless they are there.

    Raises:
      UserError: a file is in the way, or the place may not be written to.
    """
    try:
        pathlib.Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{path}: cannot be made ({error.strerror}), expected a place for a directory") from error


@contextlib.contextmanager
def new_folder(path, *, replace=True):
    """Gives the path of a folder to be, which takes the name `path` when the block ends well and is removed when not.

    The block makes the folder itself. One that has the name by then is replaced; folders above it that had to be made
    for it are removed again when they stay empty.

    Args:
      path: the folder.
      replace: whether one that has the name may be replaced.

    Raises:
      UserError: the place cannot be written to; or the name was taken meanwhile, and not to `replace`.
    """
    path = pathlib.Path(path).absolute()
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    make_directory(path.parent)
    try:
        workspace = pathlib.Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    except OSError as error:
        raise UserError(
            f"{path.parent}: cannot be written to ({error.strerror}), expected a place for {path}"
        ) from error
    try:
        folder = workspace / "new"
        yield folder
        if path.exists() and not replace:
            raise UserError(f"{path}: was made by another process meanwhile, expected a new name")
        if path.exists():
            path.rename(workspace / "old")
        folder.rename(path)
    finally:
        # Whatever came between the two renames, an interruption too: the name belongs to the old one again.
        if (workspace / "old").exists() and not path.exists():
            (workspace / "old").rename(path)
        shutil.rmtree(workspace)
        for folder in made:
            if any(folder.iterdir()):
                break
            folder.rmdir()
