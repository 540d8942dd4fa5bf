"""Choose a calibration from the embeddings alone, or none.

docs/witness.md has the study that the bounds come from.
"""

import dataclasses

import numpy as np

from bert_flow_tf.calibration.affine import (
    AffineMethod,
    cosine_directions,
    distinct_rows,
    kept_directions,
    spectrum,
    whitening_matrix,
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
    """

    directions: int | None = None

    def learn(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = distinct_rows(x)
        rows, width = x.shape
        kept = kept_directions(self.directions, width, "auto")
        unchanged = np.zeros(width), np.eye(width)
        left = LEFT_UNCHANGED
        if self.directions:
            unchanged = np.zeros(width), cosine_directions(x)[:, :kept]
            left = f"projected to the {kept} directions that keep cosines best"
        if rows < _LEAST_ROWS:
            expected = f"fewer than {_LEAST_ROWS} do not tell"
            self.choice_ = f"{left}: {rows} different sentences, {expected}"
            return unchanged
        found = spectrum(x)
        if np.sqrt(found.values.mean()) <= found.negligible:
            self.choice_ = f"{left}: they differ by rounding alone"
            return unchanged
        directions = directions_in_use(found.values, rows, width)
        measured = f"{rows:,} different sentences use {directions:.0f} of {width} directions"
        most = min(_MOST_DIRECTIONS, _MOST_OF_CHANNELS * width)
        if directions >= most:
            self.choice_ = f"{left}: {measured}; from {most:.0f} on, whitening can harm"
            return unchanged
        # With two digits, the method's name says all of it.
        softness = max(round(directions * _SOFTNESS_PER_DIRECTION, 2), 0.01)
        cut = f"-{kept}" if self.directions else ""
        self.choice_ = f"soft-whitening-{softness:g}{cut}: {measured}"
        return found.mean, whitening_matrix(found, softness)[:, :kept]
