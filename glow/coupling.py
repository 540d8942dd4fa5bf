"""Couplings: a small network of one half of the channels says how the other half moves."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow_probability.python.internal import cache_util

from glow.actnorm import ActNorm
from glow.bijector import VectorBijector
from glow.parameters import Parameters


def halves(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`x` [..., D] as the first D // 2 channels and the others; one more of these where D is odd."""
    size = x.shape[-1]
    return tf.split(x, [size // 2, size - size // 2], axis=-1)


def _convolve(x: tf.Tensor, kernel: tf.Variable) -> tf.Tensor:
    """The 1x1 convolution of `x` [..., in] with `kernel` [in, out]."""
    if x.shape.rank == 2:
        return x @ kernel
    return tf.tensordot(x, kernel, axes=1)


class ConvBlock(tf.Module):
    """A 1x1 convolution without bias, then an actnorm whose log-determinant is not used."""

    def __init__(self, parameters: Parameters, in_size: int, out_size: int) -> None:
        super().__init__(name="conv_block")
        self.kernel = parameters.normal("W", [in_size, out_size], stddev=0.05)
        self.actnorm = ActNorm(parameters.scope("actnorm"), out_size)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return self.actnorm.forward(_convolve(x, self.kernel))

    def initialize_from_data(self, x: tf.Tensor, typical_deviation: float) -> tf.Tensor:
        # What the convolution makes of independent channels of that deviation, in root mean square over its outputs.
        gain = np.sqrt(np.mean(np.sum(np.square(self.kernel.numpy()), axis=0)))
        return self.actnorm.initialize_from_data(_convolve(x, self.kernel), gain * typical_deviation)


class ConvStack(tf.Module):
    """The coupling's network of three 1x1 convolutions, [..., in_size] to [..., out_size]; variables under TF1's names.

        h1 = relu(actnorm(x @ W1))
        h2 = relu(actnorm(h1 @ W2))                                           activation "relu"
        h2 = tanh(actnorm(h1 @ W_tanh)) * sigmoid(actnorm(h1 @ W_sigm))       activation "gatu"
        y  = (h @ W3 + b) * exp(3 * logs)    with h = h2, or h = h1 + h2 if `residual`

    W3, b and logs start at zero, so a new coupling is the identity (additive) or one fixed scale (affine).
    The original's network has no skip connection; `residual` is how "3-layer CNN with residual connection" in the
    paper's Table 7 can be read. It goes over the second layer, the only one with equally many channels in and out.
    """

    def __init__(
        self,
        parameters: Parameters,
        in_size: int,
        width: int,
        out_size: int,
        *,
        activation: str = "relu",
        residual: bool = False,
    ) -> None:
        super().__init__(name="conv_stack")
        self._residual = residual
        self._gated = activation == "gatu"
        block_parameters = parameters.scope("conv_block")
        self.first = ConvBlock(block_parameters.scope("1_1"), in_size, width)
        # W2 alone, or W_tanh and W_sigm.
        second = ("1_tanh", "1_sigm") if self._gated else ("1_2",)
        self.second = [ConvBlock(block_parameters.scope(name), width, width) for name in second]
        last = parameters.scope("zeros")
        self.kernel = last.zeros("W", [width, out_size])
        self.b = last.zeros("b", [out_size])
        self.logs = last.zeros("logs", [out_size])

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        h1 = tf.nn.relu(self.first(x))
        h = self.activate(h1, [block(h1) for block in self.second])
        return (_convolve(h, self.kernel) + self.b) * tf.exp(3.0 * self.logs)

    def activate(self, h1: tf.Tensor, second: list[tf.Tensor]) -> tf.Tensor:
        """h from h1 and the outputs of the `second` blocks, all [..., width]."""
        h = tf.tanh(second[0]) * tf.sigmoid(second[1]) if self._gated else tf.nn.relu(second[0])
        return h1 + h if self._residual else h

    def initialize_from_data(self, x: tf.Tensor, typical_deviation: float) -> None:
        """Sets the actnorms from a batch, first layer first; arguments as in `ActNorm.initialize_from_data`."""
        h1 = tf.nn.relu(self.first.initialize_from_data(x, typical_deviation))
        for block in self.second:
            block.initialize_from_data(h1, typical_deviation=1.0)


class Coupling(VectorBijector):
    """What the couplings share: a `network` of the first half (see `halves`), and its initialisation."""

    # Channels that the network gives for each channel moved.
    outputs_per_channel = 1

    def __init__(self, network: Callable[[tf.Tensor], tf.Tensor], dtype: tf.DType = tf.float32) -> None:
        """Builds the bijector on `network`, a callable [..., D/2] to [..., outputs_per_channel * D/2]."""
        self.network: Any = network
        super().__init__(dtype, is_constant_jacobian=self.outputs_per_channel == 1)

    def initialize_from_data(self, x: tf.Tensor, typical_deviation: float) -> tf.Tensor:
        self.network.initialize_from_data(halves(x)[0], typical_deviation)
        return self.forward(x)


class AdditiveCoupling(Coupling):
    """Bijector of vectors that shifts the second half by a function of the first; log-determinant 0.

        y[..., :D/2] = x[..., :D/2]
        y[..., D/2:] = x[..., D/2:] + network(x[..., :D/2])

    Source: Dinh, Krueger and Bengio, NICE, ICLR 2015, <https://arxiv.org/abs/1410.8516>.
    """

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        x1, x2 = halves(x)
        return tf.concat([x1, x2 + self.network(x1)], axis=-1)

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        y1, y2 = halves(y)
        return tf.concat([y1, y2 - self.network(y1)], axis=-1)

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return tf.zeros([], x.dtype)


class AffineCoupling(Coupling):
    """Bijector of vectors that shifts and scales the second half by functions of the first.

        shift, s = network(x[..., :D/2])[..., 0::2], network(x[..., :D/2])[..., 1::2]
        y[..., :D/2] = x[..., :D/2]
        y[..., D/2:] = (x[..., D/2:] + shift) * sigmoid(s + 2)

    The log-determinant is `sum(log_sigmoid(s + 2))`. It is kept beside the forward value in TFP's cache, so that both
    together run the network once.

    Source: Dinh, Sohl-Dickstein and Bengio, Real NVP, ICLR 2017, <https://arxiv.org/abs/1605.08803>; Kingma and
    Dhariwal, Glow, NeurIPS 2018, section 3.3, <https://arxiv.org/abs/1807.03039>.
    """

    _cache = cache_util.BijectorCacheWithGreedyAttrs(
        forward_name="_forward_and_log_det", inverse_name="_inverse_and_log_det"
    )
    outputs_per_channel = 2

    def forward_and_log_det(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        y, cached = self._forward_and_log_det(x)
        return y, -cached["ildj"]

    def _shift_and_log_scale(self, x1: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        output = self.network(x1)
        return output[..., 0::2], tf.math.log_sigmoid(output[..., 1::2] + 2.0)

    def _forward_and_log_det(self, x: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        x1, x2 = halves(x)
        shift, log_scale = self._shift_and_log_scale(x1)
        y = tf.concat([x1, (x2 + shift) * tf.exp(log_scale)], axis=-1)
        return y, {"ildj": -tf.reduce_sum(log_scale, axis=-1)}

    def _inverse_and_log_det(self, y: tf.Tensor) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        y1, y2 = halves(y)
        shift, log_scale = self._shift_and_log_scale(y1)
        x = tf.concat([y1, y2 * tf.exp(-log_scale) - shift], axis=-1)
        return x, {"ildj": -tf.reduce_sum(log_scale, axis=-1)}

    # The base class asks these only if the cache does not hold the log-determinant yet.
    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return -self._forward_and_log_det(x)[1]["ildj"]

    def _inverse_log_det_jacobian(self, y: tf.Tensor) -> tf.Tensor:
        return self._inverse_and_log_det(y)[1]["ildj"]
