"""Choose a cosine that few random pairs of sentences exceed."""

import dataclasses

import numpy as np

from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.vectors.similarities import check_directions, normalized

# 4,000 rows have 8 million pairs, whose cosines take 32 MB.
_MOST_ROWS = 4000
_RESAMPLES = 200
_SEED = (0, 5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Threshold:
    """The cosine that a share of random pairs exceeds."""

    false_matches: float
    cosine: float
    low: float  # The bootstrap 95 % interval goes from `low` to `high`.
    high: float
    sentences: int

    def __str__(self) -> str:
        return f"{self.cosine:.3f} (95 %: {self.low:.3f} to {self.high:.3f})"


def check_enough(sentences: int, false_matches: float) -> None:
    """Raise `ArgumentError` if fewer than 10 pairs would exceed a threshold."""
    if not 0 < false_matches < 1:
        raise ArgumentError(
            f"false_matches: found {false_matches}, expected a share above 0 and below 1"
        )
    n = min(sentences, _MOST_ROWS)
    if n * (n - 1) // 2 * false_matches < 10:
        expected = f"expected {int((20 / false_matches) ** 0.5) + 1:,} or more, or a larger share"
        raise ArgumentError(
            f"false_matches: found {sentences:,} different sentences for {false_matches:g}, "
            f"{expected}"
        )


def sampled(texts: list[str]) -> list[str]:
    """Return the texts whose embeddings `threshold` uses: all, or 4,000 random ones."""
    return [texts[i] for i in _sampled_rows(len(texts))]


def _sampled_rows(count: int) -> np.ndarray:
    if count <= _MOST_ROWS:
        return np.arange(count)
    return np.random.default_rng(_SEED).permutation(count)[:_MOST_ROWS]


def threshold(embeddings: np.ndarray, false_matches: float = 1e-3) -> Threshold:
    """Return the cosine that the share `false_matches` of random pairs exceeds.

    It bounds matches of unrelated sentences. It says nothing of near misses, such as two sentences
    that differ in a number: only labelled pairs show how often those match. The interval is a
    bootstrap over sentences.

    Args:
      embeddings: [n, D], of different sentences; of more than 4,000, random ones are used.
      false_matches: the share of random pairs, above 0 and below 1.

    Raises:
      UserError: see `check_enough`, or an embedding is zero or not finite.
    """
    check_enough(len(embeddings), false_matches)
    u = embeddings[_sampled_rows(len(embeddings))]
    check_directions(u, "threshold")
    n = len(u)
    total = n * (n - 1) // 2
    rows, columns = np.triu_indices(n, 1)
    units = normalized(u)
    cosines = (units @ units.T)[rows, columns]
    # A resample counts pairs more or less often, so keep more of the largest than are needed.
    count = min(total - 1, int(4 * total * false_matches))
    kept = np.argpartition(-cosines, count)[: count + 1]
    kept = kept[np.argsort(-cosines[kept])]
    rows, columns, cosines = rows[kept], columns[kept], cosines[kept]

    def exceeded(counts: np.ndarray) -> float:
        # A resample may hold a row several times; pairs of a row with itself do not count.
        pairs = (counts.sum() ** 2 - np.sum(counts**2)) / 2
        above = np.searchsorted(np.cumsum(counts[rows] * counts[columns]), false_matches * pairs)
        return float(cosines[min(above, len(cosines) - 1)])

    rng = np.random.default_rng(_SEED)
    samples = [
        exceeded(np.bincount(rng.integers(n, size=n), minlength=n)) for _ in range(_RESAMPLES)
    ]
    low, high = map(float, np.percentile(samples, [2.5, 97.5]))
    return Threshold(
        false_matches=false_matches, cosine=exceeded(np.ones(n)), low=low, high=high, sentences=n
    )
