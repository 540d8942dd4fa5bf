"""What mixes the channels between two couplings: a reversal, or a learned 1x1 convolution."""

import tensorflow as tf

from glow.bijector import VectorBijector
from glow.parameters import Parameters


class Reversal(VectorBijector):
    """Bijector that reverses the channels: `y[..., i] = x[..., event_size - 1 - i]`; log-determinant 0.

    The gradient of `tfb.Permute`'s gather is a scatter, many times slower than `tf.reverse`. The paper writes of a
    random permutation, the original's code reverses.
    """

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        return tf.reverse(x, axis=[-1])

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.reverse(y, axis=[-1])

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return tf.zeros([], x.dtype)


class LearnedPermutation(VectorBijector):
    """Bijector `y = x @ W` with `W = P @ L @ (U + diag(sign_S * exp(log_S)))`: Glow's invertible 1x1 convolution.

    P is a permutation matrix, L lower triangular with ones on the diagonal, U strictly upper triangular; what the
    variables of L and U hold elsewhere is masked. The log-determinant is `sum(log_S)`. P and sign_S are fixed.

    `tfb.ScaleMatvecLU` multiplies from the other side (`y = W @ x`, one matrix-vector product per example) and keeps L,
    U and the diagonal in one variable; TF1's checkpoints keep five. Multiplying the batch by each factor in turn takes
    three matrix products and never forms W.

    Source: Kingma and Dhariwal, Glow, NeurIPS 2018, section 3.2, <https://arxiv.org/abs/1807.03039>.
    """

    def __init__(self, parameters: Parameters, size: int) -> None:
        """Creates the variables below `parameters`, under TF1's names; W starts orthogonal."""
        self._p, self._lower, self._upper, self._sign_s, self._log_s = parameters.orthogonal_plu(size)
        super().__init__(self._p.dtype)

    def _triangles(self) -> tuple[tf.Tensor, tf.Tensor]:
        lower = tf.linalg.set_diag(tf.linalg.band_part(self._lower, -1, 0), tf.ones_like(self._log_s))
        upper = tf.linalg.set_diag(tf.linalg.band_part(self._upper, 0, -1), self._sign_s * tf.exp(self._log_s))
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
