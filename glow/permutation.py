"""What mixes the channels between two couplings: a reversal, or a learned 1x1 convolution."""

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from glow.identity import ByIdentity

tfb = tfp.bijectors


class Reversal(tfb.Permute):
    """Bijector that reverses the channels: `y[..., i] = x[..., event_size - 1 - i]`; log-determinant 0.

    It is `tfb.Permute` with `tf.reverse` for the gather, whose gradient is a scatter and many times slower. The paper
    writes of a random permutation, the original's code reverses.
    """

    def __init__(self, event_size, name="reversal"):
        """Builds the reversal of vectors of `event_size` channels."""
        # TFP rebuilds composite bijectors, this one among them, from attributes named like the arguments.
        self.event_size = event_size
        super().__init__(permutation=np.arange(event_size, dtype=np.int32)[::-1], name=name)

    def forward_and_log_det(self, x):
        """`(forward(x), 0)`."""
        return self._forward(x), tf.zeros([], x.dtype)

    def _forward(self, x):
        return tf.reverse(x, axis=[-1])

    def _inverse(self, y):
        return tf.reverse(y, axis=[-1])


class LearnedPermutation(ByIdentity, tfb.Bijector):
    """Bijector `y = x @ W` with `W = P @ L @ (U + diag(sign_S * exp(log_S)))`: Glow's invertible 1x1 convolution.

    P is a permutation matrix, L lower triangular with ones on the diagonal, U strictly upper triangular; what the
    variables of L and U hold elsewhere is masked. The log-determinant is `sum(log_S)`. P and sign_S are fixed.

    `tfb.ScaleMatvecLU` multiplies from the other side (`y = W @ x`, one matrix-vector product an example) and keeps L,
    U and the diagonal in one variable; TF1's checkpoints keep five. Multiplying the batch by each factor in turn takes
    three matrix products and never forms W.

    #### References

    [1]: Diederik P. Kingma, Prafulla Dhariwal. Glow: Generative Flow with Invertible 1x1 Convolutions. _NeurIPS_, 2018,
         section 3.2.
         https://arxiv.org/abs/1807.03039
    """

    def __init__(self, p, lower, upper, sign_s, log_s, name="learned_permutation"):
        """Builds the bijector on variables p, lower, upper [event_size, event_size] and sign_s, log_s [event_size]."""
        parameters = dict(locals())
        self._p = p
        self._lower = lower
        self._upper = upper
        self._sign_s = sign_s
        self._log_s = log_s
        super().__init__(
            forward_min_event_ndims=1, is_constant_jacobian=True, dtype=p.dtype, parameters=parameters, name=name
        )

    @classmethod
    def create(cls, parameters, size):
        """A learned permutation of `size` channels with TF1's names below `parameters`; W starts orthogonal."""
        return cls(*parameters.orthogonal_plu(size))

    @classmethod
    def _parameter_properties(cls, dtype):
        # All five belong to the event: they add no batch dimensions.
        return {}

    def _triangles(self):
        lower = tf.linalg.set_diag(tf.linalg.band_part(self._lower, -1, 0), tf.ones_like(self._log_s))
        upper = tf.linalg.set_diag(tf.linalg.band_part(self._upper, 0, -1), self._sign_s * tf.exp(self._log_s))
        return lower, upper

    def forward_and_log_det(self, x):
        """`(forward(x), forward_log_det_jacobian(x))`, the latter a scalar."""
        return self._forward(x), self._forward_log_det_jacobian(x)

    def _forward(self, x):
        lower, upper = self._triangles()
        rows = tf.reshape(x, [-1, self._log_s.shape[0]])
        return tf.reshape(rows @ self._p @ lower @ upper, tf.shape(x))

    def _inverse(self, y):
        lower, upper = self._triangles()
        columns = tf.transpose(tf.reshape(y, [-1, self._log_s.shape[0]]))
        columns = tf.linalg.triangular_solve(upper, columns, lower=False, adjoint=True)
        columns = tf.linalg.triangular_solve(lower, columns, lower=True, adjoint=True)
        return tf.reshape(tf.transpose(self._p @ columns), tf.shape(y))

    def _forward_log_det_jacobian(self, x):
        return tf.reduce_sum(self._log_s)
