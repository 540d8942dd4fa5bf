"""Actnorm: one shift and one scale a channel, `y = (x + b) * exp(3 * logs)`."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from glow.identity import ByIdentity

tfb = tfp.bijectors

# A channel whose deviation is this much smaller than the typical one carries no information, only rounding.
_NEGLIGIBLE_FRACTION = 1e-4
# Nor does one whose deviation is within the rounding of the float32 sums that made it.
_ROUNDING = 32 * float(np.finfo(np.float32).eps)


class ActNorm(ByIdentity, tfb.Bijector):
    """Bijector of vectors that shifts, then scales, each channel: `y = (x + b) * exp(3 * logs)`.

    The log-determinant is `sum(3 * logs)`. Glow's factor 3 makes the logarithm learn three times as fast.

    #### References

    [1]: Diederik P. Kingma, Prafulla Dhariwal. Glow: Generative Flow with Invertible 1x1 Convolutions. _NeurIPS_, 2018,
         section 3.1.
         https://arxiv.org/abs/1807.03039
    """

    def __init__(self, b, logs, name="actnorm"):
        """Builds the bijector on two variables of shape [event_size]."""
        parameters = dict(locals())
        self._b = b
        self._logs = logs
        super().__init__(
            forward_min_event_ndims=1, is_constant_jacobian=True, dtype=b.dtype, parameters=parameters, name=name
        )

    @classmethod
    def create(cls, parameters, size):
        """An actnorm of `size` channels with TF1's names below `parameters` and the original's initial values.

        Those are Glorot uniform for both variables: the original never runs its data-dependent initialisation.
        """
        return cls(
            b=parameters.scope("actnorm_center").glorot_uniform("b", size),
            logs=parameters.scope("actnorm_scale").glorot_uniform("logs", size),
        )

    @classmethod
    def _parameter_properties(cls, dtype):
        # b and logs belong to the event: they add no batch dimensions.
        return {}

    def initialize_from_data(self, x, typical_deviation=0.0):
        """Sets b and logs so that every channel of `x` leaves with mean 0 and deviation 1, and gives back that output.

        A channel keeps scale 1 if its deviation in `x` is negligible, that is, at most 1e-4 of the typical deviation
        (the root mean square over channels, or `typical_deviation` if that is larger), or at most 32 float32 roundings
        of its mean. Some sentence encoders have such constant channels: theirs deviate by about 1e-8 to 1e-7, which is
        rounding, and the original's 1 / (deviation + 1e-6) would make a scale of a million of it.

        Args:
          x: eager tensor or array [n, event_size], finite.
          typical_deviation: what a channel that carries information is known to deviate by, from earlier steps.

        Raises:
          ValueError: `x` is not finite, or no channel varies and no `typical_deviation` is known.
        """
        values = np.asarray(x, np.float64)
        if not np.isfinite(values).all():
            raise ValueError(f"data-dependent initialisation: {self.name} met a value that is not finite")
        mean = values.mean(axis=0)
        deviation = np.sqrt(np.mean((values - mean) ** 2, axis=0))
        typical = max(np.sqrt(np.mean(deviation**2)), typical_deviation)
        negligible = deviation <= np.maximum(_NEGLIGIBLE_FRACTION * typical, _ROUNDING * np.abs(mean))
        if negligible.all() and not typical_deviation:
            raise ValueError(f"data-dependent initialisation: the {len(values)} examples do not differ in any channel")
        self._b.assign(-mean)
        self._logs.assign(np.where(negligible, 0.0, -np.log(deviation + 1e-6) / 3.0))
        return self.forward(tf.identity(x))

    def forward_and_log_det(self, x):
        """`(forward(x), forward_log_det_jacobian(x))`, the latter a scalar, in as few operations as it takes."""
        return self._forward(x), self._forward_log_det_jacobian(x)

    def _forward(self, x):
        return (x + self._b) * tf.exp(3.0 * self._logs)

    def _inverse(self, y):
        return y * tf.exp(-3.0 * self._logs) - self._b

    def _forward_log_det_jacobian(self, x):
        return tf.reduce_sum(3.0 * self._logs)
