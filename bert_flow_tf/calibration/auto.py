"""Choose a calibration from the embeddings alone, or none.

docs/witness.md has the study that the bounds come from.
"""

import numpy as np

from bert_flow_tf.calibration.affine import (
    AffineMethod,
    distinct_rows,
    participation_ratio,
    spectrum,
    whitening_matrix,
)

_MOST_DIRECTIONS = 30
_MOST_OF_CHANNELS = 1 / 4
_SOFTNESS_PER_DIRECTION = 1 / 40
# Fewer rows say too little about the directions.
_LEAST_ROWS = 100
LEFT_UNCHANGED = "left as they are"


class Auto(AffineMethod):
    """Soft whitening where the embeddings use few directions, else no change.

    1. Count the directions that the embeddings use: the participation ratio of the covariance's
       eigenvalues, corrected for the number of rows.
    2. In fewer than 30, and fewer than a quarter of the channels, whiten softly: the softness is a
       fortieth of the directions.
    3. Otherwise, and with fewer than 100 different rows, leave the embeddings as they are.

    Neither the order of the rows nor a common scale changes the choice, and repeated rows count
    once.
    """

    def learn(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x = distinct_rows(x)
        rows, width = x.shape
        unchanged = np.zeros(width), np.eye(width)
        if rows < _LEAST_ROWS:
            expected = f"fewer than {_LEAST_ROWS} do not tell"
            self.choice_ = f"{LEFT_UNCHANGED}: {rows} different sentences, {expected}"
            return unchanged
        found = spectrum(x)
        if np.sqrt(found.values.mean()) <= found.negligible:
            self.choice_ = f"{LEFT_UNCHANGED}: they differ by rounding alone"
            return unchanged
        directions = participation_ratio(found.values, rows, width)
        measured = f"{rows:,} different sentences use {directions:.0f} of {width} directions"
        most = min(_MOST_DIRECTIONS, _MOST_OF_CHANNELS * width)
        if directions >= most:
            self.choice_ = f"{LEFT_UNCHANGED}: {measured}; from {most:.0f} on, whitening can harm"
            return unchanged
        # With two digits, the method's name says all of it.
        softness = max(round(directions * _SOFTNESS_PER_DIRECTION, 2), 0.01)
        self.choice_ = f"soft-whitening-{softness:g}: {measured}"
        return found.mean, whitening_matrix(found, softness)
