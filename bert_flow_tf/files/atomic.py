"""Files and folders that are written whole or not at all, by one process at a time."""

import contextlib
import errno
import os
import pathlib
import shutil
import sys
from collections.abc import Iterator

from bert_flow_tf.errors import FULL, UserError
from bert_flow_tf.files.outputs import FolderKind, output_folder
from bert_flow_tf.files.ownership import OLD, Owned, identity, owned, part_of, resolved

# What TensorFlow says instead of the number.
_FULL_TEXTS = ("No space left on device", "Disk quota exceeded", "File too large")


def write_atomically(path: str | os.PathLike, text: str) -> None:
    """Writes a text file, whole or not at all; see `new_file`."""
    with new_file(path) as part:
        part.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def new_file(path: str | os.PathLike, *, wait: bool = False) -> Iterator[pathlib.Path]:
    """Gives an empty file to write, which gets the name `path` when the block ends well and is removed when not.

    The file of that name is replaced if it is the one that was there when this process began to own the place. Once it
    has its name, the contents survive a loss of power. Folders above it are made.

    Args:
      path: the file.
      wait: whether to wait until another process that is writing it ends.

    Raises:
      UserError: the place cannot be written to, or another process is writing there, and nothing of the block has run;
        the disk is full; or another process made a file of that name meanwhile, and the result has another name.
    """
    path = resolved(path)
    with owned(path, wait=wait) as place, refusing_full_disk(path):
        part = part_of(path)
        part.touch()
        try:
            yield part
            sync(part)
            _name(part, path, place)
        finally:
            part.unlink(missing_ok=True)


@contextlib.contextmanager
def new_folder(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Gives an empty folder to fill, which gets the name `path` when the block ends well and is removed when not.

    The folder of that name is replaced if it is the one that was there when this process began to own the place. Once
    it has its name, its files have the modes of new ones, and the contents survive a loss of power. If the block fails,
    folders above it that were made for it are removed again.

    Raises:
      UserError: as `new_file`.
    """
    path = resolved(path)
    with owned(path) as place, refusing_full_disk(path):
        workspace = part_of(path)
        folder = workspace / "new"
        folder.mkdir(parents=True)
        try:
            yield folder
            # TensorFlow copies an asset with its mode.
            mode = folder.stat().st_mode & 0o666
            for above, _, names in os.walk(folder):
                for name in names:
                    pathlib.Path(above, name).chmod(mode)
                for name in (*names, ""):
                    sync(pathlib.Path(above, name))
            if place.found is not None and identity(path) == place.found:
                path.rename(workspace / OLD)
                place.found = None
            _name(folder, path, place)
        finally:
            # If anything, an interruption too, came between the two renames, the old folder gets its name back.
            if os.path.lexists(workspace / OLD) and not os.path.lexists(path):
                (workspace / OLD).rename(path)
            shutil.rmtree(workspace)


@contextlib.contextmanager
def new_output(path: str | os.PathLike, kind: FolderKind, *, overwrite: bool) -> Iterator[pathlib.Path]:
    """Gives a `new_folder` that replaces what `output_folder` allows; between the two nobody else can write there.

    Raises:
      UserError: as both.
    """
    with owned(path), new_folder(output_folder(path, kind, overwrite=overwrite)) as folder:
        yield folder


def copy_folder(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies a folder into a new one with the modes of new files: what is read-only there can be replaced here."""
    target.mkdir()
    for path in source.iterdir():
        if path.is_dir():
            copy_folder(path, target / path.name)
        else:
            shutil.copyfile(path, target / path.name)


@contextlib.contextmanager
def refusing_full_disk(path: pathlib.Path) -> Iterator[None]:
    """Turns what Python and libraries raise where there is no space left for `path` into a `UserError`."""
    try:
        yield
    except _writing_errors() as error:
        is_full = getattr(error, "errno", None) in FULL or any(text in str(error) for text in _FULL_TEXTS)
        if not is_full:
            raise
        # Which may be a temporary file elsewhere. Of a copy, the first name is that of what is read.
        full = pathlib.Path(getattr(error, "filename2", None) or getattr(error, "filename", None) or path)
        above = next(folder for folder in full.parents if folder.exists())
        free = shutil.disk_usage(above).free
        raise UserError(f"{path}: no space left, found {free:,} bytes free in {above}, expected room for it") from error


def require_space(folder: str | os.PathLike, needed: int, what: str) -> None:
    """Raises `UserError` unless this many bytes are free in the folder, before the work whose result takes them."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise UserError(f"{folder}: found {free:,} bytes free, expected {needed:,} for {what}")


def _writing_errors() -> tuple[type[Exception], ...]:
    """What failed writing raises, TensorFlow's own included where that is loaded."""
    tensorflow = sys.modules.get("tensorflow")
    return (OSError, tensorflow.errors.OpError) if tensorflow else (OSError,)


def sync(path: pathlib.Path) -> None:
    """Makes a file's contents, or the names in a folder, survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems refuse it for folders.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def _name(new: pathlib.Path, path: pathlib.Path, place: Owned) -> None:
    """Renames what is new to `path`; where that is something else than was found, to a name beside it."""
    if identity(path) != place.found:
        kept = next(name for i in range(1, 10**6) if not (name := path.with_name(f"{path.name}.{i}")).exists())
        new.rename(kept)
        raise UserError(f"{path}: another process changed it meanwhile, left as it is; the result is in {kept}")
    new.replace(path)
    sync(path.parent)
    place.found = identity(path)
