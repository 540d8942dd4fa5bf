"""What all bijectors of the flow share."""

from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp


class VectorBijector(tfp.bijectors.Bijector):
    """Bijector of vectors whose variables belong to the event, and that equals only itself.

    TFP finds cached values by the bijector's hash, and by default hashes its parameters, and theirs, at every look-up:
    two thirds of an eager pass through a flow, and a third of the time it takes to trace one.
    """

    def __init__(self, dtype: tf.DType | None = None, *, is_constant_jacobian: bool = True) -> None:
        super().__init__(forward_min_event_ndims=1, dtype=dtype, is_constant_jacobian=is_constant_jacobian)

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    @classmethod
    def _parameter_properties(cls, dtype: Any) -> dict:
        # The variables add no batch dimensions.
        return {}

    def forward_and_log_det(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """`(forward(x), forward_log_det_jacobian(x))`, without TFP's cache and checks of shapes; see `Glow`."""
        return self._forward(x), self._forward_log_det_jacobian(x)

    def initialize_from_data(self, x: tf.Tensor, typical_deviation: float) -> tf.Tensor:
        """`forward(x)`, after setting every actnorm in here from `x`, see `ActNorm.initialize_from_data`."""
        del typical_deviation
        return self.forward(x)
