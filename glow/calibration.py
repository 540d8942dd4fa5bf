"""The interface of flows and affine maps, and the affine map."""

from typing import Protocol

import numpy as np
import tensorflow as tf

from glow.folded import DenseLayer, FoldedFlow


class Calibration(Protocol):
    """A map of embeddings [..., event_size] to the same width."""

    event_size: int

    @property
    def variables_by_path(self) -> dict[str, tf.Variable]:
        """The variables by name."""

    def forward(self, u: tf.Tensor) -> tf.Tensor:
        """Return the calibrated embeddings [..., D] of `u` [..., D]."""

    def dense_layers(self) -> list[DenseLayer]:
        """Return `forward` as dense layers; raise `ValueError` if none compute it."""

    def folded(self) -> FoldedFlow | None:
        """Return `forward` in fewer operations; None if it has no such form."""


class AffineMap(tf.Module):
    """Map embeddings `u [..., D]` to `(u - mean) @ matrix`, without a density.

    Li et al. 2020, section 4.3, compare the flow with standard normalization (SN) and with nulling
    away the top singular vectors (NATSV). Whitening is by Su et al. 2021.
    """

    def __init__(
        self, event_size: int, mean: np.ndarray | None = None, matrix: np.ndarray | None = None
    ) -> None:
        super().__init__(name="affine")
        self.event_size, self.dtype = event_size, tf.float32
        self._mean = tf.Variable(np.zeros(event_size) if mean is None else mean, dtype=self.dtype)
        self._matrix = tf.Variable(
            np.eye(event_size) if matrix is None else matrix, dtype=self.dtype
        )

    @property
    def variables_by_path(self) -> dict[str, tf.Variable]:
        """The variables by name."""
        return {"mean": self._mean, "matrix": self._matrix}

    def forward(self, u: tf.Tensor) -> tf.Tensor:
        """Return the calibrated embeddings [..., D] of `u` [..., D]."""
        return (u - self._mean) @ self._matrix

    def dense_layers(self) -> list[DenseLayer]:
        """Return `forward` as two dense layers."""
        mean, matrix = (
            np.asarray(variable.numpy(), np.float64) for variable in (self._mean, self._matrix)
        )
        return [
            DenseLayer(np.eye(self.event_size), -mean),
            DenseLayer(matrix, np.zeros(self.event_size)),
        ]

    def folded(self) -> None:
        """Return None, because `forward` is only two operations."""
