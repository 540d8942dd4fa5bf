"""Measures of edit distance and word frequency (Li et al. 2020).

The paper's Table 6 and Figure 2 compare similarities of pairs with their edit distance, Table 1 and
Figure 1 word embeddings by frequency. The distance is Levenshtein's over words, split at white
space: on STS-B's dev set this gives -24.55 for the gold scores, and the paper prints -24.61. The
ranks of wordfreq replace the paper's counts in Wikipedia; pieces that are not all letters have no
rank. Distances and dot products of Table 1 are means over a word's k nearest neighbours among all
word embeddings.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_flow_tf.vectors.metrics import spearman

# Table 1 has these ranges of ranks, without their ends.
BINS = ((1, 100), (100, 500), (500, 5_000), (5_000, 10_000))
_NEIGHBOURS = (3, 5, 7)
# So many rows at once: their distances to 100,000 words take 200 MB.
_ROWS = 256


@dataclasses.dataclass(frozen=True)
class LexicalPairs:
    """Similarities of pairs beside their edit distance.

    Attributes:
      distances: float64 [n], edits of words.
      gold: float64 [n].
      similarities: float64 [n] by name, the gold scores included.
    """

    distances: np.ndarray
    gold: np.ndarray
    similarities: dict[str, np.ndarray]

    def correlation(self, name: str) -> float:
        """Return Spearman's correlation of a similarity with the distance."""
        return spearman(self.similarities[name], self.distances)

    def agreement(self, name: str) -> float:
        """Return Spearman's correlation of a similarity with the gold scores."""
        return spearman(self.similarities[name], self.gold)


@dataclasses.dataclass(frozen=True)
class FrequencyTable:
    """Measures of word embeddings by their rank; Table 1.

    Attributes:
      names: of the ranges of ranks.
      measures: a number per range, by name; NaN for a range without words.
    """

    names: list[str]
    measures: dict[str, list[float]]

    @property
    def is_as_in_paper(self) -> bool:
        """True if norms and distances grow with the rank."""
        values = (one for name, one in self.measures.items() if "dot" not in name)
        return all(np.all(np.diff(one) > 0) for one in values)


def edit_distances(a: Sequence[str], b: Sequence[str]) -> np.ndarray:
    """Return Levenshtein's distance over the words of each pair, float64 [n]."""
    from rapidfuzz.distance import Levenshtein

    pairs = zip(a, b, strict=True)
    return np.array([Levenshtein.distance(x.split(), y.split()) for x, y in pairs], float)


def frequency_ranks(pieces: Sequence[str]) -> np.ndarray:
    """Return words' ranks from 1, or 0 for other pieces, int64 [V].

    Pieces that differ in their case alone are one word, and share its rank.
    """
    import wordfreq

    words = list(dict.fromkeys(one.lower() for one in pieces if one.isalpha()))
    shares = np.array([wordfreq.word_frequency(one, "en") for one in words])
    order = [words[i] for i in np.argsort(-shares, kind="stable") if shares[i]]
    ranks = {word: rank for rank, word in enumerate(order, start=1)}
    found = [ranks.get(one.lower(), 0) if one.isalpha() else 0 for one in pieces]
    return np.array(found, np.int64)


def frequency_table(embeddings: np.ndarray, ranks: np.ndarray) -> FrequencyTable:
    """Return norms, distances and products of word embeddings [V, D] by rank."""
    columns = [_measured(embeddings, (first <= ranks) & (ranks < stop)) for first, stop in BINS]
    names = [f"{first:,} to {stop - 1:,}" for first, stop in BINS]
    return FrequencyTable(names, {name: [one[name] for one in columns] for name in columns[0]})


def _measured(embeddings: np.ndarray, chosen: np.ndarray) -> dict[str, float]:
    """Return the means over the chosen rows; NaN without any."""
    rows = np.flatnonzero(chosen)
    most = max(_NEIGHBOURS)
    squares = np.sum(embeddings**2, axis=1)
    near = np.empty([len(rows), most])
    large = np.empty([len(rows), most])
    for i in range(0, len(rows), _ROWS):
        part = rows[i : i + _ROWS]
        products = embeddings[part] @ embeddings.T
        apart = squares[part, None] - 2 * products + squares
        # A word is no neighbour of itself.
        apart[np.arange(len(part)), part] = np.inf
        products[np.arange(len(part)), part] = -np.inf
        near[i : i + _ROWS] = np.sqrt(np.maximum(_smallest(apart, most), 0))
        large[i : i + _ROWS] = -_smallest(-products, most)
    found = {"mean ℓ2 norm": _mean(np.sqrt(squares[rows]))}
    found |= {f"mean {k}-NN ℓ2 distance": _mean(near[:, :k]) for k in _NEIGHBOURS}
    return found | {f"mean {k}-NN dot product": _mean(large[:, :k]) for k in _NEIGHBOURS}


def _smallest(values: np.ndarray, count: int) -> np.ndarray:
    """Return each row's smallest values in order."""
    return np.sort(np.partition(values, count - 1, axis=1)[:, :count], axis=1)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if values.size else float("nan")
