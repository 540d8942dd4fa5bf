"""The base class of a flow's bijectors, actnorm and permutations."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from glow.constant_channels import negligible_deviation
from glow.parameters import Parameters


class VectorBijector(tfp.bijectors.Bijector):
    """A bijector of vectors [..., D], compared by identity.

    TFP would hash all parameters to look up cached values, which takes two thirds of an eager pass
    through a flow.
    """

    def __init__(self, dtype: tf.DType | None = None, *, is_constant_jacobian: bool = True) -> None:
        super().__init__(
            forward_min_event_ndims=1, dtype=dtype, is_constant_jacobian=is_constant_jacobian
        )

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    @classmethod
    def _parameter_properties(cls, dtype: tf.DType) -> dict:
        # No parameter has batch dimensions.
        return {}

    def forward_and_log_det(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return `forward(x)` and the log-determinant, without TFP's cache and checks."""
        return self._forward(x), self._forward_log_det_jacobian(x)

    def initialize_from_data(self, x: tf.Tensor, typical_deviation: float) -> tf.Tensor:
        """Set every actnorm from `x` as `ActNorm.initialize_from_data`; return `forward(x)`."""
        return self.forward(x)


class ActNorm(VectorBijector):
    """Shift and scale each channel: `y = (x + b) * exp(3 * logs)`.

    The log-determinant is `sum(3 * logs)`. Glow's factor 3 makes the logarithm learn three times as
    fast. b and logs, both [size], start Glorot uniform, because the original never runs its
    data-dependent initialisation.

    Source: Kingma and Dhariwal, Glow, NeurIPS 2018, section 3.1,
    <https://arxiv.org/abs/1807.03039>.
    """

    def __init__(self, parameters: Parameters, size: int) -> None:
        self.b = parameters.scope("actnorm_center").glorot_uniform("b", size)
        self.logs = parameters.scope("actnorm_scale").glorot_uniform("logs", size)
        super().__init__(self.b.dtype)

    def initialize_from_data(self, x: tf.Tensor, typical_deviation: float = 0.0) -> tf.Tensor:
        """Give each output channel mean 0 and deviation 1; return `forward(x)`.

        A channel that is constant by `constant_channels.negligible_deviation` gets scale 1.

        Args:
          x: eager tensor [n, size].
          typical_deviation: typical standard deviation of a channel, if it is larger than the one
            of `x`.

        Raises:
          ValueError: `x` is not finite, or no channel varies and `typical_deviation` is 0.
        """
        values = np.asarray(x, np.float64)
        if not np.isfinite(values).all():
            raise ValueError(
                "data-dependent initialisation: found NaN or infinity, expected finite values"
            )
        mean, deviation = values.mean(axis=0), values.std(axis=0)
        typical = max(np.sqrt(np.mean(deviation**2)), typical_deviation)
        negligible = deviation <= negligible_deviation(typical, mean)
        if negligible.all() and not typical_deviation:
            raise ValueError(
                f"data-dependent initialisation: the {len(values)} examples do not differ in any "
                "channel"
            )
        self.b.assign(-mean)
        self.logs.assign(np.where(negligible, 0.0, -np.log(deviation + 1e-6) / 3.0))
        return self.forward(tf.identity(x))

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        return (x + self.b) * tf.exp(3.0 * self.logs)

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        return y * tf.exp(-3.0 * self.logs) - self.b

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(3.0 * self.logs)


class Reversal(VectorBijector):
    """Reverse the channels: `y[..., i] = x[..., D - 1 - i]`.

    The log-determinant is 0. The paper describes a random permutation, but the original's code
    reverses. `tfb.Permute` is not used because its gradient is a slow scatter.
    """

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reverse(x, axis=[-1])

    _inverse = _forward

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return tf.zeros([], x.dtype)


class LearnedPermutation(VectorBijector):
    """Glow's invertible 1x1 convolution: `y = x @ W`.

    `W = P @ L @ (U + diag(sign_S * exp(log_S)))`, where P is a permutation matrix, L is lower
    triangular with ones on the diagonal, and U is strictly upper triangular; the other entries of
    the variables L and U have no effect. The log-determinant is `sum(log_S)`. P and sign_S are
    fixed, and W is initially orthogonal. `tfb.ScaleMatvecLU` is not used because it multiplies from
    the left and stores one variable, where TF1's checkpoints have five.

    Source: Kingma and Dhariwal, Glow, NeurIPS 2018, section 3.2,
    <https://arxiv.org/abs/1807.03039>.
    """

    def __init__(self, parameters: Parameters, size: int) -> None:
        self._p, self._lower, self._upper, self._sign_s, self._log_s = parameters.orthogonal_plu(
            size
        )
        super().__init__(self._p.dtype)

    def _triangles(self) -> tuple[tf.Tensor, tf.Tensor]:
        lower = tf.linalg.set_diag(
            tf.linalg.band_part(self._lower, -1, 0), tf.ones_like(self._log_s)
        )
        upper = tf.linalg.set_diag(
            tf.linalg.band_part(self._upper, 0, -1), self._sign_s * tf.exp(self._log_s)
        )
        return lower, upper

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        lower, upper = self._triangles()
        rows = tf.reshape(x, [-1, self._log_s.shape[0]])
        return tf.reshape(rows @ self._p @ lower @ upper, tf.shape(x))

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        lower, upper = self._triangles()
        columns = tf.transpose(tf.reshape(y, [-1, self._log_s.shape[0]]))
        columns = tf.linalg.triangular_solve(upper, columns, lower=False, adjoint=True)
        columns = tf.linalg.triangular_solve(lower, columns, lower=True, adjoint=True)
        return tf.reshape(tf.transpose(self._p @ columns), tf.shape(y))

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(self._log_s)
