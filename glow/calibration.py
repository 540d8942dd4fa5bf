"""The interface that flows and affine maps share."""

from typing import Protocol

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
        """Return `forward` as dense layers; raise `ValueError` if it is none."""

    def folded(self) -> FoldedFlow | None:
        """Return `forward` in fewer operations; None if there is none."""
