"""Relate an encoder's word embeddings to word frequency.

Source: Li et al. 2020, section 3 (Table 1 and Figure 1). The paper leaves some choices open:

- Whole words are ranked from 1 by the package `wordfreq`; the paper counted a Wikipedia dump. Pieces that are not all
  letters (`##s`, `[MASK]`, `2010`) and words unknown to `wordfreq` have no rank.
- A word's neighbours are all other word embeddings, with or without a rank.
- Distances are to the k nearest neighbours, dot products with the k neighbours of largest product. The paper's figures
  cannot come from the same neighbours for both.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from bert_flow_tf.errors import UserError, pip_install

# These are the paper's (0,100), [100,500), [500,5K) and [5K,10K).
RANK_BINS = ((1, 100), (100, 500), (500, 5_000), (5_000, 10_000))
NEIGHBORS = (3, 5, 7)


class RankBin(msgspec.Struct, frozen=True):
    """Means over words of ranks `first` to `stop - 1`; None without words."""

    first: int
    stop: int
    words: int
    mean_l2_norm: float | None
    mean_knn_l2_distance: dict[int, float | None]  # by k: the mean over the k neighbours
    mean_knn_dot_product: dict[int, float | None]


def english_frequencies() -> dict[str, float]:
    """Return each lower-case word's share of English text, by `wordfreq`."""
    try:
        import wordfreq
    except ModuleNotFoundError as error:
        raise UserError(f"word frequencies: wordfreq is not installed: {pip_install('words')}") from error
    return wordfreq.get_frequency_dict("en")


def frequency_ranks(vocabulary: Sequence[str], frequencies: Mapping[str, float]) -> np.ndarray:
    """Return frequency ranks of pieces, int64 [V]: from 1, or 0."""
    ids = [i for i, piece in enumerate(vocabulary) if piece.isalpha() and frequencies.get(piece.lower(), 0) > 0]
    if not ids:
        raise UserError(f"vocabulary: none of its {len(vocabulary)} pieces is a word with a known frequency")
    order = np.argsort([-frequencies[vocabulary[i].lower()] for i in ids], kind="stable")
    ranks = np.zeros(len(vocabulary), np.int64)
    ranks[np.asarray(ids)[order]] = np.arange(1, len(ids) + 1)
    return ranks


def rank_statistics(embeddings: np.ndarray, ranks: np.ndarray) -> list[RankBin]:
    """Return a `RankBin` for each of `RANK_BINS`, as in Table 1."""
    from sklearn.neighbors import NearestNeighbors

    def mean(values: np.ndarray) -> float | None:
        return float(values.mean(dtype=np.float64)) if values.size else None

    embeddings, ranks, max_k = np.asarray(embeddings), np.asarray(ranks), max(NEIGHBORS)
    search = NearestNeighbors(n_neighbors=max_k + 1, algorithm="brute").fit(embeddings)
    bins = []
    for first, stop in RANK_BINS:
        ids = np.flatnonzero((first <= ranks) & (ranks < stop))
        # Drop the nearest neighbour, which is the word itself.
        distances = search.kneighbors(embeddings[ids])[0][:, 1:] if len(ids) else np.empty((0, max_k))
        products = _largest_products(embeddings, ids, max_k)
        means = ({k: mean(values[:, :k]) for k in NEIGHBORS} for values in (distances, products))
        bins.append(RankBin(first, stop, len(ids), mean(np.linalg.norm(embeddings[ids], axis=1)), *means))
    return bins


def svd_projection(embeddings: np.ndarray) -> np.ndarray:
    """Return coordinates [n, 2] on the first two singular vectors."""
    embeddings = np.asarray(embeddings, np.float64)
    # The Gram matrix [D, D] is far smaller than [n, D]; its two largest eigenvalues are well separated from the rest.
    _, vectors = np.linalg.eigh(embeddings.T @ embeddings)
    points = embeddings @ vectors[:, :-3:-1]
    # A singular vector's sign is arbitrary; without this rule another machine might mirror the figure.
    return points * np.where(points.mean(axis=0) < 0, -1.0, 1.0)


def _largest_products(embeddings: np.ndarray, ids: np.ndarray, k: int) -> np.ndarray:
    """Return the rows' k largest dot products with other rows, descending."""
    products = np.empty((len(ids), k))
    for start in range(0, len(ids), 512):
        block = ids[start : start + 512]
        dots = embeddings[block] @ embeddings.T
        dots[np.arange(len(block)), block] = -np.inf
        products[start : start + len(block)] = -np.sort(np.partition(-dots, k - 1, axis=1)[:, :k], axis=1)
    return products
