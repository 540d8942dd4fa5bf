"""Nearest rows of embeddings, and groups of near rows."""

import collections
import dataclasses
from collections.abc import Iterator

import numpy as np

# The cosines of 256 rows with all later ones are in memory at once.
_ROWS = 256
# A group is a chain if two of this many members have a cosine so far below the threshold.
_SAMPLE = 256
_FAR = 0.2


def nearest_rows(
    queries: np.ndarray, corpus: np.ndarray, count: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield each query's largest cosines, descending, and their rows in the corpus.

    Args:
      queries, corpus: embeddings [m, D] and [n, D].
      count: number of rows for each query, if the corpus has so many.
    """
    from sklearn.neighbors import NearestNeighbors

    neighbors = NearestNeighbors(n_neighbors=min(count, len(corpus)), metric="cosine").fit(corpus)
    for distances, rows in zip(*neighbors.kneighbors(queries), strict=True):
        yield 1 - distances, rows


def similar_groups(u: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the group and the largest cosine of each row.

    The rows `u` [n, D] have norm 1. Groups are connected by cosines of `threshold` or more. Memory
    is linear in n.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(u)
    groups = np.arange(n)
    nearest = np.full(n, -1.0, np.float32)
    for start in range(0, n, _ROWS):
        cosines = u[start : start + _ROWS] @ u[start:].T
        np.fill_diagonal(cosines, -1)
        rows = slice(start, start + len(cosines))
        nearest[rows] = np.maximum(nearest[rows], cosines.max(axis=1))
        nearest[start:] = np.maximum(nearest[start:], cosines.max(axis=0))
        near = np.argwhere(cosines >= threshold) + start
        if len(near):
            # The nodes of this graph are the groups so far.
            edges = coo_array((np.ones(len(near), bool), groups[near].T), shape=(n, n))
            groups = connected_components(edges, directed=False)[1][groups]
    return groups, nearest


def numbered_by_size(groups: np.ndarray) -> np.ndarray:
    """Number groups [n] by size, from 1; a single row has 0."""
    counts = collections.Counter(groups.tolist()).most_common()
    numbers = {group: i for i, (group, count) in enumerate(counts, 1) if count > 1}
    return np.array([numbers.get(group, 0) for group in groups.tolist()])


@dataclasses.dataclass(frozen=True)
class Chains:
    """Groups whose ends are unlike.

    Attributes:
      count: number of such groups.
      least_cosine: the least cosine of two rows of one group.
    """

    count: int
    least_cosine: float


def chains(u: np.ndarray, groups: np.ndarray, threshold: float) -> Chains:
    """Find groups of rows with a cosine far below the threshold.

    Args:
      u: embeddings [n, D] of norm 1.
      groups: the group of each row [n], see `similar_groups`.
    """
    by_group = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[by_group])) + 1
    count = 0
    least = 1.0
    for members in np.split(by_group, starts):
        if len(members) < 3:
            continue
        # A sample tells whether a large group is a chain.
        members = members[:: max(1, len(members) // _SAMPLE)]
        cosine = float((u[members] @ u[members].T).min())
        least = min(least, cosine)
        count += int(cosine < threshold - _FAR)
    return Chains(count, least)
