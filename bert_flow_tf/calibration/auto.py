"""Choose a calibration from the embeddings alone, or none.

docs/witness.md has the study that the bounds come from.
"""

import dataclasses

import numpy as np

from bert_flow_tf.calibration.affine import (
    AffineMethod,
    CosineDirections,
    SoftWhitening,
    distinct_rows,
    kept_directions,
    spectrum,
)
from bert_flow_tf.vectors.isotropy import directions_in_use

_MOST_DIRECTIONS = 30
_MOST_OF_CHANNELS = 1 / 4
_SOFTNESS_PER_DIRECTION = 1 / 40
# Fewer rows say too little about the directions.
_LEAST_ROWS = 100
LEFT_UNCHANGED = "left as they are"


@dataclasses.dataclass
class Auto(AffineMethod):
    """Soft whitening where the embeddings use few directions, else no change.

    1. Count the directions that the embeddings use: the participation ratio of the covariance's
       eigenvalues, corrected for the number of rows.
    2. In fewer than 30, and fewer than a quarter of the channels, whiten softly: the softness is a
       fortieth of the directions.
    3. Otherwise, and with fewer than 100 different rows, leave the embeddings as they are.

    Neither the order of the rows nor a common scale changes the choice, and repeated rows count
    once.

    Args:
      directions: the number of channels that are kept; None for all. Soft whitening keeps the
        directions of most variance. Embeddings that would be left alone are projected to the
        directions that keep their cosines best, see `affine.cosine_directions`.
      decision: the method to learn, decided before; None to decide by the rows that it learns.

    Attributes:
      decision_, choice_: what was decided, and the reason in words.
    """

    directions: int | None = None
    decision: AffineMethod | None = None

    def learn(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = distinct_rows(x)
        kept_directions(self.directions, x.shape[1], "auto")
        self.decision_, self.choice_ = (self.decision, "") if self.decision else self._decide(x)
        return self.decision_.learn(x)

    def decided(self) -> "Auto":
        return dataclasses.replace(self, decision=self.decision_)

    def _decide(self, x: np.ndarray) -> tuple[AffineMethod, str]:
        """Return the method for different rows [n, D], and why."""
        rows, width = x.shape
        unchanged = CosineDirections(self.directions)
        left = LEFT_UNCHANGED
        if self.directions:
            left = f"projected to the {self.directions} directions that keep cosines best"
        if rows < _LEAST_ROWS:
            expected = f"fewer than {_LEAST_ROWS} do not tell"
            return unchanged, f"{left}: {rows} different sentences, {expected}"
        found = spectrum(x)
        if np.sqrt(found.values.mean()) <= found.negligible:
            return unchanged, f"{left}: they differ by rounding alone"
        directions = directions_in_use(found.values, rows, width)
        measured = f"{rows:,} different sentences use {directions:.0f} of {width} directions"
        most = min(_MOST_DIRECTIONS, _MOST_OF_CHANNELS * width)
        if directions >= most:
            return unchanged, f"{left}: {measured}; from {most:.0f} on, whitening can harm"
        # With two digits, the method's name says all of it.
        softness = max(round(directions * _SOFTNESS_PER_DIRECTION, 2), 0.01)
        cut = f"-{self.directions}" if self.directions else ""
        chosen = f"soft-whitening-{softness:g}{cut}: {measured}"
        return SoftWhitening(softness, self.directions), chosen
