"""Measure whether a calibration helps, with and without labels.

docs/witness.md shows how often the measure without labels, `Witness`, agrees with labelled pairs, `Judgement`.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.protocols import cosines, spearman

# "helps" needs a rise x100 above _HELPS, "harms" a fall below -_HARMS, and both need _ERRORS standard errors.
_HELPS, _HARMS, _ERRORS = 1.5, 4.0, 2.0
_RESAMPLES = 1000
COMPARE = "; compare with labelled pairs (--pairs)"

Encode = Callable[[Sequence[str]], np.ndarray]
Map = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Witness:
    """A measure without labels, before and after a calibration.

    It is the mean of two numbers: the share of sentence pairs that are less similar than a sentence and half of its own
    words; and Spearman's correlation between a sentence's share of the words in a mixture of two and its cosine with
    the mixture. `error` is the bootstrap standard error of the difference.
    """

    sentences: int
    before: float
    after: float
    error: float

    @property
    def claim(self) -> str:
        """The verdict: "helps", "harms", or advice if the change is unclear."""
        change = 100 * (self.after - self.before)
        if abs(change) > _ERRORS * 100 * self.error and not -_HARMS < change < _HELPS:
            return "helps" if change > 0 else "harms"
        return f"no clear change{COMPARE}"

    def __str__(self) -> str:
        found = f"sentences recognised by their words, {100 * self.before:.2f} before, {100 * self.after:.2f} after"
        error = f"x100, standard error {100 * self.error:.2f}"
        advice = "; use the encoder as it is" if self.claim == "harms" else ""
        return f"{self.claim}: {self.sentences:,} held-out {found} ({error}){advice}"


def witness(encode: Encode, calibrate: Map, sentences: Sequence[str], seed: int = 0) -> Witness:
    """Return the `Witness` of a calibration.

    Args:
      encode: function from sentences to embeddings [n, D] before the calibration.
      calibrate: function from these embeddings to calibrated ones, such as `FlowCalibrator.transform`.
      sentences: 2 or more sentences that were not used to learn the calibration.
      seed: seed of the drawn words and pairs.
    """
    rng = np.random.default_rng([seed, 4])
    halves, mixtures, shares = _draw_texts(sentences, rng)
    embeddings = [encode(texts) for texts in (sentences, halves, mixtures)]
    old, new = _measure(*embeddings), _measure(*map(calibrate, embeddings))

    def mean(measured: tuple[np.ndarray, np.ndarray], rows: np.ndarray | slice) -> float:
        above, similarities = measured
        return float(above[rows].mean() + _correlation(similarities[rows], shares[rows])) / 2

    samples = [rng.integers(len(sentences), size=len(sentences)) for _ in range(_RESAMPLES // 5)]
    error = float(np.std([mean(new, rows) - mean(old, rows) for rows in samples]))
    return Witness(len(sentences), mean(old, slice(None)), mean(new, slice(None)), error)


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Return Spearman's correlation, or 0 if either is constant."""
    return spearman(x, y) if np.ptp(x) and np.ptp(y) else 0.0


def _draw_texts(sentences: Sequence[str], rng: np.random.Generator) -> tuple[list[str], list[str], np.ndarray]:
    """Return halves of the sentences, mixtures of two, and their shares."""
    halves, mixtures, shares = [], [], []
    for i, sentence in enumerate(sentences):
        words = sentence.split() or [""]
        other = sentences[(i + 1 + rng.integers(len(sentences) - 1)) % len(sentences)].split() or [""]
        kept = rng.permutation(len(words)) < round(rng.uniform() * len(words))
        mixed = [word if keep else other[rng.integers(len(other))] for word, keep in zip(words, kept, strict=True)]
        half = rng.permutation(len(words)) < (len(words) + 1) // 2
        halves.append(" ".join(word for word, keep in zip(words, half, strict=True) if keep))
        mixtures.append(" ".join(mixed))
        shares.append(kept.mean())
    return halves, mixtures, np.array(shares)


def _measure(sentences: np.ndarray, halves: np.ndarray, mixtures: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of pairs below each half's cosine, and mixtures' cosines."""
    u, h, m = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30) for x in (sentences, halves, mixtures))
    pairs = np.sort((u @ u.T)[np.triu_indices(len(u), 1)])
    return np.searchsorted(pairs, np.sum(u * h, axis=1)) / len(pairs), np.sum(u * m, axis=1)


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Spearman's correlation with labels before and after a calibration."""

    pairs: int
    before: float
    after: float
    low: float  # The bootstrap 95 % interval of the difference goes from `low` to `high`.
    high: float

    @property
    def claim(self) -> str:
        """The verdict: "helps", "harms" or "no clear change"."""
        return "helps" if self.low > 0 else "harms" if self.high < 0 else "no clear change"

    def __str__(self) -> str:
        change, interval = 100 * (self.after - self.before), f"{100 * self.low:+.2f} to {100 * self.high:+.2f}"
        scores = f"Spearman x100 {100 * self.before:.2f} before, {100 * self.after:.2f} after"
        return f"{self.claim}: {self.pairs:,} labelled pairs, {scores}; difference {change:+.2f} (95 %: {interval})"


def check_pairs(a: Sequence[str], b: Sequence[str], scores: Sequence[float]) -> None:
    """Raise `UserError` unless lengths are equal and scores differ."""
    if not len(a) == len(b) == len(scores):
        raise UserError(f"pairs: found {len(a)} and {len(b)} sentences, {len(scores)} scores, expected equal numbers")
    if not np.isfinite(scores).all() or len(set(scores)) < 2:
        raise UserError(f"pairs: found {sorted(set(scores))[:3]} as scores, expected finite numbers that differ")


def judge(encode: Encode, calibrate: Map, a: Sequence[str], b: Sequence[str], scores: Sequence[float]) -> Judgement:
    """Return the `Judgement` of a calibration on scored pairs."""
    gold, (u, v) = np.asarray(scores, np.float64), map(encode, (a, b))
    old, new = cosines(u, v, "pairs, before"), cosines(calibrate(u), calibrate(v), "pairs, after")
    before, after = _correlation(old, gold), _correlation(new, gold)
    rng = np.random.default_rng(0)
    samples = [rng.integers(len(gold), size=len(gold)) for _ in range(_RESAMPLES)]
    differences = [_correlation(new[rows], gold[rows]) - _correlation(old[rows], gold[rows]) for rows in samples]
    low, high = np.percentile(differences, [2.5, 97.5])
    return Judgement(len(gold), before, after, float(low), float(high))
