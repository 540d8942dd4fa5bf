"""The losses and the measured effect of a `fit`."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bert_flow_tf.calibration.judgement import Encode, Judgement, Map, Pairs, judge
from bert_flow_tf.calibration.witness import Witness, witness
from bert_flow_tf.common.losses import BITS, Losses, saved_losses
from bert_flow_tf.common.reading import AnyPath
from bert_flow_tf.common.records import Verdict, made_by
from bert_flow_tf.vectors.isotropy import Change, measure_isotropy
from bert_flow_tf.vectors.thresholds import Threshold, threshold

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
      saved_verdict: of a loaded model, whose measures were not saved; else None.
      unit: of the losses.
    """

    losses: np.ndarray = dataclasses.field(repr=False)
    judgement: Judgement | None
    witness: Witness | None
    change: Change | None
    thresholds: tuple[Threshold, Threshold] | None = None
    choice: str = ""
    held_out_losses: dict[int, float] = dataclasses.field(default_factory=dict)
    saved_verdict: Verdict | None = None
    unit: str = BITS

    @property
    def verdict(self) -> Verdict | None:
        """The claim of the pairs, else of the witness; None without measures."""
        if self.saved_verdict is not None:
            return self.saved_verdict
        measure = self.judgement or self.witness
        words = str(self)
        return (
            Verdict(claim=measure.claim if measure else "not judged", words=words)
            if words
            else None
        )

    @property
    def claim(self) -> str:
        """The verdict's claim; "not judged" without a verdict."""
        return self.verdict.claim if self.verdict else "not judged"

    @property
    def words(self) -> str:
        """The lines that `fit` prints."""
        return str(self)

    @property
    def recorded_losses(self) -> Losses | None:
        """The losses to save with a model; None without steps."""
        if not len(self.losses):
            return None
        return Losses(
            made_by=made_by("fit"),
            unit=self.unit,
            training=dict(enumerate(self.losses.tolist(), start=1)),
            held_out=self.held_out_losses,
        )

    def __str__(self) -> str:
        if self.saved_verdict is not None:
            return self.saved_verdict.words
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


def saved_history(folder: AnyPath, verdict: Verdict | None) -> History | None:
    """Return the losses and the verdict that a model was saved with."""
    found = saved_losses(folder)
    if found is None and verdict is None:
        return None
    return History(
        losses=np.array([*found.training.values()] if found else [], np.float32),
        judgement=None,
        witness=None,
        change=None,
        held_out_losses=found.held_out if found else {},
        saved_verdict=verdict,
        unit=found.unit if found else BITS,
    )


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

    `low_dim` and `truncate_dim` hold on both sides.
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
