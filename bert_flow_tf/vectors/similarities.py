"""Similarity functions of embeddings, named as in sentence-transformers."""

from collections.abc import Callable, Iterable, Iterator
from typing import cast

import numpy as np

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import reading
from bert_flow_tf.vectors.texts import sentence_list

ENCODE_PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")
_LEAST_SQUARE = np.float32(1e-12)  # as in `tf.nn.l2_normalize`


def normalized(x: np.ndarray) -> np.ndarray:
    """Return rows of norm 1, float32 [..., D]; zeros stay zeros."""
    squares = np.sum(np.square(x), axis=-1, keepdims=True)
    return x / np.sqrt(np.maximum(squares, _LEAST_SQUARE))


# Embeddings [..., D] broadcast; distances are negated, so that a larger value always means more
# similar.
FUNCTIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda a, b: (normalized(a) * normalized(b)).sum(axis=-1),
    "dot": lambda a, b: (a * b).sum(axis=-1),
    "euclidean": lambda a, b: -np.linalg.norm(a - b, axis=-1),
    "manhattan": lambda a, b: -np.abs(a - b).sum(axis=-1),
}


def similarities(name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the similarity of all pairs of rows, float32 [n, m]."""
    if name in ("euclidean", "manhattan"):
        found = np.empty((len(a), len(b)), np.float32)
        for i, row in enumerate(a.astype(np.float64)):
            found[i] = FUNCTIONS[name](row, b)
        return found
    if name == "cosine":
        a, b = normalized(a), normalized(b)
    return a @ b.T


def embeddings_of(
    values: object, name: str, encode: Callable[[list[str]], np.ndarray]
) -> np.ndarray:
    """Return embeddings, float32 [n, D]: strings are encoded, arrays kept."""
    if isinstance(values, str):
        return encode([values])
    values = list(values) if isinstance(values, Iterator) else values
    with reading(name, "sentences or embeddings [n, D]"):
        rows = np.atleast_2d(given := np.asarray(values))
    if rows.dtype.kind in "OSU":
        return encode(sentence_list(cast(Iterable[str], values), name))
    rows = rows.astype(np.float32)
    if rows.ndim != 2 or not rows.shape[1]:
        raise UserError(
            f"{name}: found shape {list(given.shape)}, expected sentences or embeddings [n, D]"
        )
    return rows


def quantized(embeddings: np.ndarray, precision: str) -> np.ndarray:
    """Return embeddings [n, D] in one of `ENCODE_PRECISIONS`, as sentence-transformers.

    `uint8` divides each channel's range over these rows into 255 steps, so compare these rows only
    with each other. `ubinary` packs bits, 1 for numbers above 0, into uint8 [n, ceil(D / 8)],
    highest bit first. `int8` and `binary` are `uint8` and `ubinary` minus 128.
    """
    if precision == "float32":
        return embeddings
    if precision.endswith("binary"):
        levels = np.packbits(embeddings > 0, axis=-1)
    else:
        low, high = embeddings.min(axis=0, initial=np.inf), embeddings.max(axis=0, initial=-np.inf)
        steps = (high - low) / 255
        levels = np.clip(
            np.floor((embeddings - low) / np.where(steps == 0, 1, steps)), 0, 255
        ).astype(np.uint8)
    return levels if precision.startswith("u") else (levels.astype(np.int16) - 128).astype(np.int8)


def smallest_cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Return the smallest cosine of two matrices' rows [n, D]."""
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return float((np.sum(a * b, axis=1) / norms).min())
