"""How alike embeddings are: the functions that sentence-transformers has, by its names."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.sentence_files import sentence_list

# Rows that are compared with all others at once, for the distances that are no product of matrices.
_ROWS = 64


def _normalized(x: np.ndarray) -> np.ndarray:
    return tf.nn.l2_normalize(x, axis=-1).numpy()


def _cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (_normalized(a) * _normalized(b)).sum(axis=-1)


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(axis=-1)


def _euclidean(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return -np.sqrt(((a - b) ** 2).sum(axis=-1))


def _manhattan(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return -np.abs(a - b).sum(axis=-1)


# Name -> function of embeddings [..., D] and [..., D], which broadcast; the distances are negative.
FUNCTIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": _cosine,
    "dot": _dot,
    "euclidean": _euclidean,
    "manhattan": _manhattan,
}


def check_similarity_name(name: str) -> None:
    """Raises `ArgumentError` unless it is a name in `FUNCTIONS`."""
    if name not in FUNCTIONS:
        raise ArgumentError(f"similarity_fn_name: found {name!r}, expected {', '.join(FUNCTIONS)}")


def similarities(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """float32 [n, m] of embeddings [n, D] and [m, D], each with each."""
    if name in ("cosine", "dot"):
        if name == "cosine":
            a, b = _normalized(a), _normalized(b)
        return tf.matmul(a, b, transpose_b=True).numpy()
    parts = [FUNCTIONS[name](a[start : start + _ROWS, np.newaxis], b) for start in range(0, len(a), _ROWS)]
    return np.concatenate(parts) if parts else np.zeros((0, len(b)), np.float32)


def embeddings_of(values: Any, name: str, encode: Callable[[list[str]], np.ndarray]) -> np.ndarray:
    """Embeddings [n, D] of what can be compared: numbers [n, D] or [D] as float32, a string or strings by `encode`.

    Raises:
      UserError: it is neither; the line calls it `name`.
    """
    if isinstance(values, str):
        return encode([values])
    if getattr(values, "dtype", None) is not None and np.asarray(values).dtype.kind not in "fiub":
        values = np.asarray(values).tolist()
    if not hasattr(values, "dtype"):
        if isinstance(values, Iterator):
            values = list(values)
        if not isinstance(values, (list, tuple)) or any(isinstance(v, (str, bytes, type(None))) for v in values):
            return encode(sentence_list(values, name))
    try:
        rows = np.atleast_2d(np.asarray(values, np.float32))
    except (TypeError, ValueError):
        return encode(sentence_list(values, name))
    if rows.ndim != 2 or not rows.shape[1]:
        raise UserError(
            f"{name}: found an array of shape {list(np.shape(values))}, expected sentences or embeddings [n, D]"
        )
    return rows
