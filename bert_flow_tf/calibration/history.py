"""The losses and the measured effect of a `fit`."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_flow_tf.calibration.judgement import Encode, Judgement, Map, Pairs, judge
from bert_flow_tf.calibration.thresholds import threshold
from bert_flow_tf.calibration.witness import Witness, witness
from bert_flow_tf.evaluation.isotropy import Change, measure_isotropy
from bert_flow_tf.records import Threshold, Verdict

# Fewer held-out sentences would give a poor threshold.
ENOUGH_FOR_THRESHOLD = 200


@dataclasses.dataclass(frozen=True)
class History:
    """The losses and the measured effect of a `fit`.

    Attributes:
      losses: float32 [steps], the loss before each step, in bits per dimension; with a loss of
        one's own, that loss.
      judgement: the change on labelled pairs; None without pairs.
      witness: the change of a measure that needs no labels; None without held-out sentences, and
        for encoders and methods that it was not studied on.
      change: the isotropy before and after; None without held-out sentences.
      thresholds: the cosine that one in 1,000 random pairs of held-out sentences exceeds, before
        and after; None with fewer than 200 held-out sentences.
      choice: what the method `auto` chose, and why; "" for the others.
      held_out_losses: the held-out sentences' loss by step, likewise; empty without them.
    """

    losses: np.ndarray = dataclasses.field(repr=False)
    judgement: Judgement | None
    witness: Witness | None
    change: Change | None
    thresholds: tuple[Threshold, Threshold] | None = None
    choice: str = ""
    held_out_losses: dict[int, float] = dataclasses.field(default_factory=dict)

    @property
    def verdict(self) -> Verdict | None:
        """The claim of the pairs, else of the witness; None without measures."""
        measure = self.judgement or self.witness
        words = str(self)
        return (
            Verdict(claim=measure.claim if measure else "not judged", words=words)
            if words
            else None
        )

    def __str__(self) -> str:
        lines = []
        if self.choice:
            lines.append(f"auto: {self.choice}")
        if self.judgement:
            lines.append(str(self.judgement))
        if self.witness:
            claim = f"{self.witness.claim}: {self.witness.figures}"
            lines.append(f"without labels: {claim}" if self.judgement else str(self.witness))
        if self.change:
            lines.append(str(self.change))
        if self.thresholds:
            before, after = self.thresholds
            cosines = f"a cosine of {before} before, {after} after"
            lines.append(f"one in {1 / before.false_matches:,.0f} random pairs exceeds {cosines}")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Sentences or rows that a calibration was not learned on.

    Attributes:
      sentences: None for rows of an array.
      embeddings: of the encoder, [m, D].
    """

    sentences: Sequence[str] | None
    embeddings: np.ndarray


@dataclasses.dataclass(frozen=True)
class Sides:
    """The functions from the encoder's embeddings to those that are compared.

    `low_dim` holds on both sides.
    """

    before: Map
    after: Map


def measured_witness(
    encode: Encode, sides: Sides, held_out: HeldOut | None, seed: int
) -> Witness | None:
    """Return the `Witness` on held-out sentences, None without sentences."""
    if held_out is None or held_out.sentences is None:
        return None
    return witness(encode, sides.before, sides.after, held_out.sentences, seed)


def measured_change(sides: Sides, held_out: HeldOut | None) -> Change | None:
    """Return the change of isotropy of held-out embeddings."""
    if held_out is None:
        return None
    before = sides.before(held_out.embeddings)
    after = sides.after(held_out.embeddings)
    return Change(measure_isotropy(before), measure_isotropy(after))


def measured_thresholds(
    sides: Sides, held_out: HeldOut | None
) -> tuple[Threshold, Threshold] | None:
    """Return held-out sentences' thresholds before and after, or None for few."""
    if held_out is None or held_out.sentences is None:
        return None
    before = sides.before(held_out.embeddings)
    after = sides.after(held_out.embeddings)
    # Rows of zeros have no cosine.
    if len(before) < ENOUGH_FOR_THRESHOLD or not (before.any(axis=1) & after.any(axis=1)).all():
        return None
    return threshold(before), threshold(after)


def measured_judgement(
    encode: Encode, sides: Sides, pairs: Pairs | None, metric: str | None
) -> Judgement | None:
    """Return the `Judgement` on labelled pairs; None without pairs."""
    return None if pairs is None else judge(encode, sides.before, sides.after, pairs, metric)
