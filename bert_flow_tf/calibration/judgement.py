"""Judge a calibration by labelled pairs."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from bert_flow_tf.calibration.settings import METRICS
from bert_flow_tf.common.errors import ArgumentError, warn_user
from bert_flow_tf.vectors.metrics import METRIC_NAMES, Cuts, auc, best_f1, spearman_or_zero
from bert_flow_tf.vectors.similarities import cosines_of_pairs, has_direction

Pairs = tuple[Sequence[str], Sequence[str], Sequence[float]]
Encode = Callable[[Sequence[str]], np.ndarray]
Map = Callable[[np.ndarray], np.ndarray]

AS_IT_IS = "; use the encoder as it is"
_RESAMPLES = 1000
# A corpus of many texts has few equal pairs, for which a best F1's cosine was not chosen.
_RARE = 1e-3


@dataclasses.dataclass(frozen=True)
class Measured:
    """A measure before and after a calibration.

    Attributes:
      low, high: the bootstrap 95 % interval of the difference.
    """

    before: float
    after: float
    low: float
    high: float

    @property
    def change(self) -> float:
        return self.after - self.before

    @property
    def claim(self) -> str:
        """The verdict: "helps", "harms" or "no clear change"."""
        return "helps" if self.low > 0 else "harms" if self.high < 0 else "no clear change"

    @property
    def interval(self) -> str:
        """The interval in words, times 100."""
        return f"95 %: {100 * self.low:+.2f} to {100 * self.high:+.2f}"


@dataclasses.dataclass(frozen=True)
class BestF1:
    """The cosine at which F1 is best, for labels 0 and 1.

    Attributes:
      precision_if_rare: the precision at that cosine if one in 1,000 pairs has the label 1. If no
        pair with the label 0 reaches the cosine, it is estimated as if one did.
    """

    f1: float
    cosine: float
    precision_if_rare: float


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Measures on labelled pairs, before and after a calibration.

    Attributes:
      pairs: their number.
      measures: Spearman's correlation; for labels 0 and 1 also the area under the ROC curve and
        the best F1, by the names of `settings.METRICS`.
      deciding: the names of those that decide: Spearman's correlation for graded scores, AUC and
        F1 for labels 0 and 1, or what was asked for.
      best_f1: before and after; None for graded scores.
    """

    pairs: int
    measures: dict[str, Measured]
    deciding: tuple[str, ...]
    best_f1: tuple[BestF1, BestF1] | None = None

    def __post_init__(self) -> None:
        # msgspec names the file of a record that has lost a measure.
        if not self.deciding or not self.measures.keys() >= {*self.deciding}:
            found = f"found {', '.join(self.deciding) or 'none'}"
            raise ValueError(f"deciding: {found}, expected some of the measures")

    @property
    def decided(self) -> Measured:
        """The first of the measures that decide."""
        return self.measures[self.deciding[0]]

    @property
    def claim(self) -> str:
        """The verdict: "helps", "harms" or "no clear change"."""
        claims = {self.measures[name].claim for name in self.deciding}
        decided = claims - {"no clear change"}
        return decided.pop() if len(decided) == 1 else "no clear change"

    @property
    def disagreement(self) -> str:
        """The changes, in words, if their signs differ, else ""."""
        changes = {name: 100 * one.change for name, one in self.measures.items()}
        # Less is nothing in the digits that are shown.
        signs = {np.sign(change) for change in changes.values() if abs(change) >= 0.005}
        if len(signs) < 2:
            return ""
        said = ", ".join(f"{METRIC_NAMES[name]} {change:+.2f}" for name, change in changes.items())
        return f"the measures disagree: {said}"

    def __str__(self) -> str:
        parts = [f"{self.claim}: {self.pairs:,} labelled pairs"]
        names = [*self.deciding, *(name for name in self.measures if name not in self.deciding)]
        for name in names:
            one = self.measures[name]
            before, after = f"{100 * one.before:.2f}", f"{100 * one.after:.2f}"
            if name == "f1" and self.best_f1:
                before, after = (
                    f"{100 * side.f1:.2f} at cosine {side.cosine:.2f}" for side in self.best_f1
                )
            said = f"{METRIC_NAMES[name]} x100 {before} before, {after} after"
            parts.append(f"{said}; difference {100 * one.change:+.2f} ({one.interval})")
        line = f"{parts[0]}, {'; '.join(parts[1:])}"
        line += f"; {self.disagreement}" if self.disagreement else ""
        return line + (AS_IT_IS if self.claim == "harms" else "")


def deciding_measures(scores: Sequence[float], metric: str | None = None) -> tuple[str, ...]:
    """Return the names of the measures that decide, see `Judgement`.

    Raises `ArgumentError` for an unknown `metric`, or one that needs labels 0 and 1.
    """
    has_labels = set(scores) == {0, 1}
    if metric is None:
        return ("auc", "f1") if has_labels else ("spearman",)
    if metric not in METRICS:
        raise ArgumentError(f"metric: found {metric!r}, expected {', '.join(METRICS)}")
    if metric != "spearman" and not has_labels:
        raise ArgumentError(f"metric: found {metric} with graded scores, expected labels 0 and 1")
    return (metric,)


def judge(
    encode: Encode, before: Map, after: Map, pairs: Pairs, metric: str | None = None
) -> Judgement | None:
    """Return the `Judgement` of a calibration on scored pairs.

    Pairs with a sentence that has no direction are left out with a warning; the result is None if
    the others' scores do not differ.

    Args:
      encode: function from sentences to the encoder's embeddings [n, D].
      before, after: functions from these to the embeddings without and with the calibration.
      metric: see `deciding_measures`.
    """
    a, b, scores = pairs
    deciding = deciding_measures(scores, metric)
    has_labels = set(scores) == {0, 1}
    gold = np.asarray(scores, np.float64)
    u, v = encode(a), encode(b)
    sides = before(u), before(v), after(u), after(v)
    kept = np.logical_and.reduce([has_direction(side) for side in sides])
    if not kept.all():
        without = f"{np.sum(~kept):,} of {len(kept):,} have a sentence whose embedding is zero"
        warn_user(f"pairs: {without}, which are left out")
    gold = gold[kept]
    if len(set(gold)) < 2:
        return None
    u, v, u_after, v_after = (side[kept] for side in sides)
    old = cosines_of_pairs(u, v, "pairs, before")
    new = cosines_of_pairs(u_after, v_after, "pairs, after")
    measures = {"spearman": _measured(spearman_or_zero, old, new, gold)}
    if not has_labels:
        return Judgement(len(gold), measures, deciding)
    measures["auc"] = _measured(auc, old, new, gold)
    measures["f1"] = _measured(best_f1, old, new, gold)
    return Judgement(len(gold), measures, deciding, (_best_f1(old, gold), _best_f1(new, gold)))


def _measured(
    measure: Callable[[np.ndarray, np.ndarray], float],
    old: np.ndarray,
    new: np.ndarray,
    gold: np.ndarray,
) -> Measured:
    """Return a measure of both sides' cosines, with a bootstrap over pairs."""
    rng = np.random.default_rng(0)
    differences = []
    for _ in range(_RESAMPLES):
        rows = rng.integers(len(gold), size=len(gold))
        if np.ptp(gold[rows]):
            differences.append(measure(new[rows], gold[rows]) - measure(old[rows], gold[rows]))
    low, high = map(float, np.percentile(differences, [2.5, 97.5]))
    return Measured(measure(old, gold), measure(new, gold), low, high)


def _best_f1(cosines: np.ndarray, labels: np.ndarray) -> BestF1:
    cuts = Cuts.of(cosines, labels)
    f1 = cuts.f1
    best = int(np.argmax(f1))
    misses = cuts.taken - cuts.hits
    share_found = cuts.recall[best]
    # Where no pair was matched falsely, one could have been.
    share_false = max(misses[best], 1) / max(misses[-1], 1)
    found = _RARE * share_found
    precision = found / (found + (1 - _RARE) * share_false)
    return BestF1(float(f1[best]), float(cuts.values[best]), float(precision))
