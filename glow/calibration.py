"""The interface of flows and affine maps, and the affine map.

A *calibration* is a learned map of embeddings: a flow (`glow.flow`) or an `AffineMap`. The
*calibrator* (`glow.calibrator`) learns one, with the interface of scikit-learn.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
import tensorflow as tf

from glow.folded import DenseLayer, FoldedFlow

# Up to so many rows, NumPy's calls cost less than TensorFlow's.
_NUMPY_ROWS = 64
_ROWS_PER_CALL = 4096

Forward = Callable[[tf.Tensor], tf.Tensor]


class Calibration(Protocol):
    """A map of embeddings [..., event_size] to [..., output_size]."""

    event_size: int

    @property
    def output_size(self) -> int:
        """The number of channels of `forward`'s result."""

    @property
    def variables_by_path(self) -> dict[str, tf.Variable]:
        """The variables by name."""

    def forward(self, u: tf.Tensor) -> tf.Tensor:
        """Return the calibrated embeddings [..., d] of `u` [..., D]."""

    def dense_layers(self) -> list[DenseLayer]:
        """Return `forward` as dense layers; raise `ValueError` if none compute it."""

    def folded(self) -> FoldedFlow | None:
        """Return `forward` in fewer operations; None if it has no such form."""

    def fixed_forward(self) -> Forward:
        """Return the fastest form of `forward`, for variables that no longer change."""


class AffineMap(tf.Module):
    """Map embeddings `u [..., D]` to `(u - mean) @ matrix` [..., d], without a density.

    Li et al. 2020, section 4.3, compare the flow with standard normalization (SN) and with nulling
    away the top singular vectors (NATSV). Whitening is by Su et al. 2021.

        >>> half = AffineMap(4, mean=np.ones(4), matrix=np.eye(4)[:, :2])
        >>> half.output_size
        2

    Args:
      event_size: D.
      mean: [D]; by default zeros.
      matrix: [D, d]; by default the identity.
    """

    def __init__(
        self, event_size: int, mean: np.ndarray | None = None, matrix: np.ndarray | None = None
    ) -> None:
        super().__init__(name="affine")
        self.event_size = event_size
        self.dtype = tf.float32
        self._mean = tf.Variable(np.zeros(event_size) if mean is None else mean, dtype=self.dtype)
        self._matrix = tf.Variable(
            np.eye(event_size) if matrix is None else matrix, dtype=self.dtype
        )
        self.output_size = int(self._matrix.shape[1])

    @property
    def variables_by_path(self) -> dict[str, tf.Variable]:
        """The variables by name."""
        return {"mean": self._mean, "matrix": self._matrix}

    def forward(self, u: tf.Tensor) -> tf.Tensor:
        """Return the calibrated embeddings [..., d] of `u` [..., D]."""
        return (u - self._mean) @ self._matrix

    def dense_layers(self) -> list[DenseLayer]:
        """Return `forward` as one dense layer, whose bias is computed in float64."""
        mean, matrix = (
            np.asarray(variable.numpy(), np.float64) for variable in (self._mean, self._matrix)
        )
        return [DenseLayer(matrix, -mean @ matrix)]

    def folded(self) -> None:
        """Return None, because `forward` is only two operations."""

    def fixed_forward(self) -> Forward:
        """Return `forward`."""
        return self.forward


def forward_rows(forward: Forward, u: np.ndarray) -> np.ndarray:
    """Apply `Calibration.fixed_forward` to an array [n, D], some thousand rows per call."""
    if len(u) <= _NUMPY_ROWS and isinstance(forward, FoldedFlow):
        return forward.of_array(u)
    return in_blocks(forward, u)


def in_blocks(function: Forward, rows: np.ndarray) -> np.ndarray:
    """Apply a function to an array's rows, some thousand per call."""
    starts = range(0, max(1, len(rows)), _ROWS_PER_CALL)
    return np.concatenate([function(rows[i : i + _ROWS_PER_CALL]) for i in starts])
