"""Read files that others may have written: whatever is wrong with one is a line that names it."""

import contextlib
import hashlib
import os
import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from bert_flow_tf.errors import UserError

if TYPE_CHECKING:
    import numpy as np

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")


@contextlib.contextmanager
def reading(path: str | os.PathLike, expected: str) -> Iterator[None]:
    """Turn whatever a reader raises into one line: `PATH: cannot be read as EXPECTED: REASON`.

    `path` is the file, or what errors call it; `expected` has an article: "a run's settings".

    Raises:
      UserError: the block raised an exception; a `UserError` stays as it is.
    """
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such file, expected {expected}") from error
    except Exception as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path}: cannot be read as {expected}: {reason[:300]}") from error


def read_text(path: str | os.PathLike, expected: str) -> str:
    """Return the text of a file in UTF-8, without a byte order mark; errors as of `reading`."""
    with reading(path, expected):
        return pathlib.Path(path).read_bytes().decode("utf-8-sig")


def is_remote(path: str | os.PathLike) -> bool:
    """True for an address, which fsspec opens: `s3://bucket/name`, `gs://…`, `hdfs://…`, `https://…`."""
    return _ADDRESS.match(os.fspath(path)) is not None


def refuse_address(path: str | os.PathLike, name: str) -> None:
    """Raise `UserError`, beginning with the name, for an address, where something is to be written."""
    if is_remote(path):
        raise UserError(f"{name}: found an address, expected a path of this machine, mounted perhaps")


def file_digest(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a file's bytes, in hex; errors as of `reading`."""
    digest = hashlib.sha256()
    with reading(path, "a file"), open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def update_with_arrays(digest: "hashlib._Hash", arrays: "Iterable[tuple[str, np.ndarray]]") -> None:
    """Feed names, types, shapes and numbers of (name, array) pairs to a hashlib digest, in the order given."""
    for name, array in arrays:
        digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(array.tobytes())
