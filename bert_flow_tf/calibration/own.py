"""A calibration by another library's transformer that is not affine."""

from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from glow.folded import DenseLayer
from glow.maps import Forward


class OwnCalibration:
    """A transformer with scikit-learn's `transform` as a calibration.

    It calibrates arrays, also in a graph; but its weights are in no variables, so it is neither
    saved nor exported.

    Args:
      transformer: fitted.
      event_size, output_size: the numbers of channels before and after it.
    """

    kind: ClassVar[str] = "transformer"

    def __init__(self, transformer: Any, event_size: int, output_size: int) -> None:
        self.transformer = transformer
        self.event_size = event_size
        self.output_size = output_size
        self.variables_by_path: dict[str, tf.Variable] = {}

    @property
    def recipe(self) -> dict[str, Any]:
        """Raise `ValueError`, because nothing identifies the transformer."""
        raise ValueError(f"found {self}")

    def __str__(self) -> str:
        return f"{' '.join(repr(self.transformer).split())}, whose transform is not affine"

    def forward(self, u: tf.Tensor) -> tf.Tensor:
        """Return the transformed embeddings, float32 [n, d], of `u` [n, D]."""
        z = tf.numpy_function(self._transform, [u], tf.float32, stateful=False)
        z.set_shape([u.shape[0], self.output_size])
        return z

    def _transform(self, u: np.ndarray) -> np.ndarray:
        return np.asarray(self.transformer.transform(u), np.float32)

    def dense_layers(self) -> list[DenseLayer]:
        """Raise `ValueError`."""
        raise ValueError(f"found {self}")

    def fixed_forward(self) -> Forward:
        """Return `forward`."""
        return self.forward
