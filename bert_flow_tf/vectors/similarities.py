"""Norms, cosines and other similarities, named as in sentence-transformers."""

from collections.abc import Callable, Iterable, Iterator
from typing import cast

import numpy as np
import numpy.typing as npt

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import reading
from bert_flow_tf.vectors.texts import sentence_list


def normalized(x: np.ndarray) -> np.ndarray:
    """Return rows of norm 1, [..., D]; zeros stay zeros."""
    norms = np.linalg.norm(x, axis=-1, keepdims=True)
    norms[norms == 0] = 1
    return x / norms


def cosines(a: npt.ArrayLike, b: npt.ArrayLike) -> np.ndarray:
    """Return the cosine of each pair of rows, float64 [n].

    It is 0 if a row is zero.
    """
    a, b = np.asarray(a), np.asarray(b)
    # A single square root makes the cosine of equal embeddings exactly 1, so that such pairs are
    # ties.
    ab, aa, bb = (
        np.einsum("nd,nd->n", *sides, dtype=np.float64) for sides in ((a, b), (a, a), (b, b))
    )
    lengths = np.sqrt(aa * bb)
    lengths[lengths == 0] = 1
    return ab / lengths


def mean_cosine(units: np.ndarray) -> float:
    """Return the mean cosine of pairs of different rows of norm 1."""
    n = len(units)
    # The squared norm of the sum of n unit vectors is n plus their cosines over all ordered pairs.
    total = units.sum(axis=0)
    return float((total @ total - n) / (n * (n - 1)))


def cosines_of_pairs(a: npt.ArrayLike, b: npt.ArrayLike, label: str) -> np.ndarray:
    """Return `cosines`; raise `UserError`, which begins with `label`, as `check_directions`."""
    a, b = np.asarray(a), np.asarray(b)
    check_directions(a, label, side="first ")
    check_directions(b, label, side="second ")
    return cosines(a, b)


def has_direction(u: np.ndarray) -> np.ndarray:
    """Return True for each row [n] that is finite and not zero."""
    return np.isfinite(u).all(axis=1) & u.any(axis=1)


def check_directions(u: np.ndarray, label: str, *, side: str = "") -> None:
    """Raise `UserError` if an embedding is zero, NaN or infinite.

    Such a row has no cosine. `side` is "first " or "second " for pairs.
    """
    bad = ~has_direction(u)
    if bad.any():
        found = (
            f"{bad.sum()} of the {len(u)} {side}sentences have embeddings that are zero "
            "or not finite"
        )
        one = "pair" if side else "sentence"
        raise UserError(f"{label}: {found}; see {one} {np.argmax(bad) + 1}")


# Each pair of rows [n, D] has one value. Distances are negated, so that a larger value always means
# more similar.
FUNCTIONS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda a, b: cosines(a, b).astype(np.float32),
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
