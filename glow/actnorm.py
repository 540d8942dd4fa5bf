"""Actnorm: one shift and one scale per channel, `y = (x + b) * exp(3 * logs)`."""

import numpy as np
import tensorflow as tf

from glow.bijector import VectorBijector
from glow.embeddings import negligible_deviation
from glow.parameters import Parameters


class ActNorm(VectorBijector):
    """Bijector of vectors that shifts, then scales, each channel: `y = (x + b) * exp(3 * logs)`.

    The log-determinant is `sum(3 * logs)`. Glow's factor 3 makes the logarithm learn three times as fast.

    Args:
      parameters: where the variables b and logs, both [size], are created under TF1's names. They start Glorot uniform:
        the original never runs its data-dependent initialisation.

    Source: Kingma and Dhariwal, Glow, NeurIPS 2018, section 3.1, <https://arxiv.org/abs/1807.03039>.
    """

    def __init__(self, parameters: Parameters, size: int) -> None:
        self.b = parameters.scope("actnorm_center").glorot_uniform("b", size)
        self.logs = parameters.scope("actnorm_scale").glorot_uniform("logs", size)
        super().__init__(self.b.dtype)

    def initialize_from_data(self, x: tf.Tensor, typical_deviation: float = 0.0) -> tf.Tensor:
        """The output for `x`, after setting b and logs so that each of its channels has mean 0 and deviation 1.

        A channel whose deviation is negligible (see `embeddings.negligible_deviation`) keeps scale 1.

        Args:
          x: eager tensor or array [n, event_size].
          typical_deviation: the deviation of a channel that carries information, where earlier steps say it; else, or
            if that is larger, the root mean square over channels.

        Raises:
          ValueError: `x` is not finite, or no channel varies and no `typical_deviation` is known.
        """
        values = np.asarray(x, np.float64)
        if not np.isfinite(values).all():
            raise ValueError(
                "data-dependent initialisation: the input of an actnorm is not finite, expected finite embeddings"
            )
        mean = values.mean(axis=0)
        deviation = np.sqrt(np.mean((values - mean) ** 2, axis=0))
        typical = max(np.sqrt(np.mean(deviation**2)), typical_deviation)
        negligible = deviation <= negligible_deviation(typical, mean)
        if negligible.all() and not typical_deviation:
            raise ValueError(f"data-dependent initialisation: the {len(values)} examples do not differ in any channel")
        self.b.assign(-mean)
        self.logs.assign(np.where(negligible, 0.0, -np.log(deviation + 1e-6) / 3.0))
        return self.forward(tf.identity(x))

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        return (x + self.b) * tf.exp(3.0 * self.logs)

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        return y * tf.exp(-3.0 * self.logs) - self.b

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(3.0 * self.logs)
