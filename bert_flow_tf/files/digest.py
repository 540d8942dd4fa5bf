"""SHA-256 digests of files and arrays."""

import hashlib
import os
from collections.abc import Iterable

import numpy as np

from bert_flow_tf.files.reading import reading


def file_digest(path: str | os.PathLike) -> str:
    """SHA-256 of the file's bytes, in hex.

    Raises:
      UserError: the file cannot be read.
    """
    digest = hashlib.sha256()
    with reading(path, "a file"), open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def update_with_arrays(digest: "hashlib._Hash", arrays: Iterable[tuple[str, np.ndarray]]) -> None:
    """Feeds names, types, shapes and numbers of (name, array) pairs to a hashlib digest, in the order given."""
    for name, array in arrays:
        digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
