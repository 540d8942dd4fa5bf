"""Measure whether a calibration helps, with and without labels.

docs/witness.md shows how often the measure without labels, `Witness`, agrees with labelled pairs,
`Judgement`.
"""

import dataclasses
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.protocols import auc, cosines, spearman

# docs/witness.md says how these bounds were found, and how often the claims are right.
_FEW_DIRECTIONS, _MANY_DIRECTIONS, _FALL, _ENOUGH = 25, 45, 0.015, 100
_RESAMPLES = 1000
COMPARE, AS_IT_IS = "; compare with labelled pairs (--pairs)", "; use the encoder as it is"

Encode = Callable[[Sequence[str]], np.ndarray]
Map = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Witness:
    """A measure without labels, before and after a calibration.

    Attributes:
      before, after: Spearman's correlation between a sentence's share of the words in a mixture of
        two sentences and its cosine with the mixture.
      directions: the participation ratio of the sentences before, see `directions`.
    """

    sentences: int
    before: float
    after: float
    directions: float

    @property
    def claim(self) -> str:
        """The verdict: "helps", "harms", or advice if it is unclear."""
        if (
            self.sentences >= _ENOUGH
            and self.after > self.before
            and self.directions < _FEW_DIRECTIONS
        ):
            return "helps"
        if (
            self.sentences >= _ENOUGH
            and self.after < self.before - _FALL
            and self.directions > _MANY_DIRECTIONS
        ):
            return "harms"
        return f"no clear change{COMPARE}"

    def __str__(self) -> str:
        found = (
            f"mixtures recognised, {100 * self.before:.2f} before, {100 * self.after:.2f} "
            "after (x100)"
        )
        line = (
            f"{self.claim}: {self.sentences:,} held-out sentences in {self.directions:.0f} "
            f"directions, {found}"
        )
        return line + (AS_IT_IS if self.claim == "harms" else "")


def directions(embeddings: np.ndarray) -> float:
    """Return the participation ratio of embeddings [n, D], corrected for n.

    It is the number of directions of equal variance with the same spread. For n rows of an
    isotropic space, 1 / ratio is 1 / D + 1 / (n - 1), so the second term is subtracted.
    """
    variances = np.linalg.svd(embeddings - embeddings.mean(axis=0), compute_uv=False) ** 2
    inverse = np.sum(variances**2) / max(variances.sum() ** 2, 1e-30) - 1 / (len(embeddings) - 1)
    return float(min(1 / max(inverse, 1e-9), embeddings.shape[1]))


def witness(encode: Encode, calibrate: Map, sentences: Sequence[str], seed: int = 0) -> Witness:
    """Return the `Witness` of a calibration.

    Args:
      encode: function from sentences to embeddings [n, D] before the calibration.
      calibrate: function from these embeddings to calibrated ones, such as
        `FlowCalibrator.transform`.
      sentences: 2 or more sentences that were not used to learn the calibration.
      seed: seed of the drawn words and pairs.
    """
    mixtures, shares = _draw_mixtures(sentences, np.random.default_rng([seed, 4]))
    u, mixed = encode(sentences), encode(mixtures)
    before, after = _similarities(u, mixed), _similarities(calibrate(u), calibrate(mixed))
    return Witness(
        len(sentences), _correlation(before, shares), _correlation(after, shares), directions(u)
    )


def _similarities(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the cosines of rows [n, D], 0 for zeros."""
    a, b = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-30) for x in (a, b))
    return np.sum(a * b, axis=1)


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Return Spearman's correlation, or 0 if either is constant."""
    return spearman(x, y) if np.ptp(x) and np.ptp(y) else 0.0


def _draw_mixtures(
    sentences: Sequence[str], rng: np.random.Generator
) -> tuple[list[str], np.ndarray]:
    """Return mixtures of each sentence's words with another's, and its shares."""
    mixtures, shares = [], []
    for i, sentence in enumerate(sentences):
        words = sentence.split() or [""]
        other = sentences[(i + 1 + rng.integers(len(sentences) - 1)) % len(sentences)].split() or [
            ""
        ]
        kept = rng.permutation(len(words)) < round(rng.uniform() * len(words))
        mixed = [
            word if keep else other[rng.integers(len(other))]
            for word, keep in zip(words, kept, strict=True)
        ]
        mixtures.append(" ".join(mixed))
        shares.append(kept.mean())
    return mixtures, np.array(shares)


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Spearman's correlation with labels before and after a calibration."""

    pairs: int
    before: float
    after: float
    low: float  # The bootstrap 95 % interval of the difference goes from `low` to `high`.
    high: float
    # For scores 0 and 1, before and after: the area under the ROC curve; the best F1 and its
    # cosine.
    auc: tuple[float, float] | None = None
    best_f1: tuple[tuple[float, float], tuple[float, float]] | None = None

    @property
    def claim(self) -> str:
        """The verdict: "helps", "harms" or "no clear change"."""
        return "helps" if self.low > 0 else "harms" if self.high < 0 else "no clear change"

    def __str__(self) -> str:
        change, interval = (
            100 * (self.after - self.before),
            f"{100 * self.low:+.2f} to {100 * self.high:+.2f}",
        )
        scores = f"Spearman x100 {100 * self.before:.2f} before, {100 * self.after:.2f} after"
        line = (
            f"{self.claim}: {self.pairs:,} labelled pairs, {scores}; difference {change:+.2f} "
            f"(95 %: {interval})"
        )
        if self.auc and self.best_f1:
            line += f"; AUC x100 {100 * self.auc[0]:.2f} before, {100 * self.auc[1]:.2f} after"
            f1 = (f"{100 * best:.2f} at cosine {cut:.2f}" for best, cut in self.best_f1)
            line += f"; best F1 x100 {' before, '.join(f1)} after"
        return line + (AS_IT_IS if self.claim == "harms" else "")


class Compared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of one calibration in a comparison.

    Attributes:
      spearman, interval: on labelled pairs, and the 95 % interval of the difference from no
        calibration.
      auc, best_f1: for labels 0 and 1; `best_f1` with its cosine.
      witness, witness_claim, mean_cosine, threshold: on held-out sentences, see `Witness` and
        `Threshold`.
      verdict: by the pairs, else by the witness.
    """

    method: str
    spearman: float | None = None
    interval: tuple[float, float] | None = None
    auc: float | None = None
    best_f1: tuple[float, float] | None = None
    witness: float | None = None
    witness_claim: str | None = None
    mean_cosine: float | None = None
    threshold: float | None = None
    verdict: str | None = None


def recommended(rows: Sequence[Compared]) -> str:
    """Return the best method of those that help, or "none"."""
    helping = [row for row in rows if row.verdict == "helps"]
    return (
        max(helping, key=lambda row: row.spearman or row.witness or 0.0).method
        if helping
        else "none"
    )


def check_pairs(a: Sequence[str], b: Sequence[str], scores: Sequence[float]) -> None:
    """Raise `UserError` unless lengths are equal and scores differ."""
    if not len(a) == len(b) == len(scores):
        raise UserError(
            f"pairs: found {len(a)} and {len(b)} sentences, {len(scores)} scores, expected equal "
            "numbers"
        )
    if not np.isfinite(scores).all() or len(set(scores)) < 2:
        raise UserError(
            f"pairs: found {sorted(set(scores))[:3]} as scores, expected finite numbers that differ"
        )


def judge(
    encode: Encode, calibrate: Map, a: Sequence[str], b: Sequence[str], scores: Sequence[float]
) -> Judgement:
    """Return the `Judgement` of a calibration on scored pairs."""
    gold, (u, v) = np.asarray(scores, np.float64), map(encode, (a, b))
    old, new = cosines(u, v, "pairs, before"), cosines(calibrate(u), calibrate(v), "pairs, after")
    before, after = _correlation(old, gold), _correlation(new, gold)
    rng = np.random.default_rng(0)
    samples = [rng.integers(len(gold), size=len(gold)) for _ in range(_RESAMPLES)]
    differences = [
        _correlation(new[rows], gold[rows]) - _correlation(old[rows], gold[rows])
        for rows in samples
    ]
    low, high = map(float, np.percentile(differences, [2.5, 97.5]))
    if set(gold) != {0, 1}:
        return Judgement(len(gold), before, after, low, high)
    sides = (_best_f1(old, gold), _best_f1(new, gold))
    return Judgement(len(gold), before, after, low, high, (auc(old, gold), auc(new, gold)), sides)


def _best_f1(cosines: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Return the best F1 of a threshold, and that cosine."""
    from sklearn.metrics import precision_recall_curve

    precision, recall, cuts = precision_recall_curve(labels, cosines)
    f1 = (2 * precision * recall / np.maximum(precision + recall, 1e-9))[:-1]
    return float(f1.max()), float(cuts[f1.argmax()])
