"""Choose a calibration from the embeddings alone, or none.

docs/witness.md has the study that the rule comes from.
"""

import dataclasses

import numpy as np

from bert_flow_tf.calibration.affine import (
    AffineMethod,
    CosineDirections,
    WhiteningAboutOrigin,
    distinct_rows,
    kept_directions,
    spectrum,
)
from bert_flow_tf.vectors.isotropy import directions_in_use
from bert_flow_tf.vectors.similarities import mean_cosine, normalized

# The softness is 1 where the square of the directions is so many times the mean cosine.
_SQUARE_PER_COSINE = 1350
# A smaller softness would enlarge directions that few sentences hardly show.
_LEAST_SOFTNESS = 0.1
# A greater one would change little.
_MOST_SOFTNESS = 300
_MOST_OF_CHANNELS = 1 / 4
# Fewer rows say too little about the directions.
_LEAST_ROWS = 100
LEFT_UNCHANGED = "left as they are"


@dataclasses.dataclass
class Auto(AffineMethod):
    """Gentle whitening of a narrow cone, else no change.

    1. Measure the cosine of two random rows on average, and count the directions that the
       embeddings use: the participation ratio of the covariance's eigenvalues, corrected for the
       number of rows.
    2. Whiten about the origin with the softness (directions² / (1350 · cosine))², at least 0.1: a
       narrow cone of few directions strongly, a wide one of many hardly.
    3. Leave the embeddings as they are where the softness would be 300 or more, where they use a
       quarter of their channels or more, and with fewer than 100 different rows.

    Neither the order of the rows nor a common scale changes the choice, and repeated rows count
    once.

    Args:
      directions: the number of channels that are kept; None for all. Whitening keeps the
        directions of greatest second moment. Embeddings that would be left alone are projected to
        the directions that keep their cosines best, see `affine.cosine_directions`.
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
        cosine = mean_cosine(normalized(x))
        softness = softness_of(directions, cosine)
        measured = (
            f"two random sentences have a cosine of {cosine:.2f} on average, and "
            f"{rows:,} use {directions:.0f} of {width} directions"
        )
        if softness >= _MOST_SOFTNESS or directions >= _MOST_OF_CHANNELS * width:
            return unchanged, f"{left}: {measured}: no narrow cone"
        how = "gently" if softness >= 1 else "softly"
        cut = f" to {self.directions} channels" if self.directions else ""
        chosen = f"whitened {how}{cut} (softness {softness:.2g}): {measured}: a narrow cone"
        return WhiteningAboutOrigin(softness, self.directions), chosen


def softness_of(directions: float, cosine: float) -> float:
    """Return the softness for directions in use and a mean cosine."""
    if cosine <= 0:
        return float("inf")
    return max((directions**2 / (_SQUARE_PER_COSINE * cosine)) ** 2, _LEAST_SOFTNESS)
