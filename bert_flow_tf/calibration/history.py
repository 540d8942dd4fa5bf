"""The losses and the measured effect of a `fit`."""

import dataclasses

import numpy as np

from bert_flow_tf.calibration.judgement import Judgement
from bert_flow_tf.calibration.witness import Witness
from bert_flow_tf.common.losses import BITS, Losses, saved_losses
from bert_flow_tf.common.reading import AnyPath
from bert_flow_tf.common.records import Verdict, made_by
from bert_flow_tf.vectors.isotropy import Change
from bert_flow_tf.vectors.thresholds import Threshold


@dataclasses.dataclass(frozen=True, eq=False)
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

    losses: np.ndarray = dataclasses.field(
        default_factory=lambda: np.empty(0, np.float32), repr=False
    )
    judgement: Judgement | None = None
    witness: Witness | None = None
    change: Change | None = None
    thresholds: tuple[Threshold, Threshold] | None = None
    choice: str = ""
    held_out_losses: dict[int, float] = dataclasses.field(default_factory=dict)
    saved_verdict: Verdict | None = None
    unit: str = BITS

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, History):
            return NotImplemented
        # Arrays of several numbers are neither equal nor unequal.
        mine = {**vars(self), "losses": self.losses.tolist()}
        return mine == {**vars(other), "losses": other.losses.tolist()}

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
        """Return the lines that `fit` prints."""
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
        held_out_losses=found.held_out if found else {},
        saved_verdict=verdict,
        unit=found.unit if found else BITS,
    )
