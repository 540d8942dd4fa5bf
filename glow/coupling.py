"""Coupling layers, which change one half of the channels given the other."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from glow.bijectors import ActNorm, VectorBijector
from glow.parameters import Parameters

# A coupling's network; `ConvStack` also has the argument `drop`, for dropout in training.
Network = Callable[..., tf.Tensor]
# A function of `parameters`, `inputs` and `outputs` makes a network.
MakeNetwork = Callable[..., Network]


def halves(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the first D // 2 channels and the rest."""
    size = x.shape[-1]
    return tf.split(x, [size // 2, size - size // 2], axis=-1)


def _convolve(x: tf.Tensor, kernel: tf.Variable) -> tf.Tensor:
    return x @ kernel if x.shape.rank == 2 else tf.tensordot(x, kernel, axes=1)


class ConvBlock(tf.Module):
    """A 1x1 convolution without bias, followed by an actnorm."""

    def __init__(self, parameters: Parameters, in_size: int, out_size: int) -> None:
        super().__init__(name="conv_block")
        self.kernel = parameters.normal("W", [in_size, out_size], stddev=0.05)
        self.actnorm = ActNorm(parameters.scope("actnorm"), out_size)

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return self.actnorm.forward(_convolve(x, self.kernel))

    def initialize_from_data(self, x: tf.Tensor, typical_deviation: float) -> tf.Tensor:
        # For independent inputs, the convolution multiplies the typical deviation by this factor.
        gain = np.sqrt(np.mean(np.sum(np.square(self.kernel.numpy()), axis=0)))
        return self.actnorm.initialize_from_data(
            _convolve(x, self.kernel), gain * typical_deviation
        )


class ConvStack(tf.Module):
    """A coupling's network of three 1x1 convolutions.

        h1 = relu(actnorm(x @ W1))
        h2 = relu(actnorm(h1 @ W2))                                           activation "relu"
        h2 = tanh(actnorm(h1 @ W_tanh)) * sigmoid(actnorm(h1 @ W_sigm))       activation "gatu"
        y  = (h2 @ W3 + b) * exp(3 * logs)

    In training, `drop` applies dropout to h1 and h2. W3, b and logs are initially 0, so a new
    additive coupling is the identity and a new affine one a constant scale. The "residual
    connection" of the paper's Table 7 is the coupling's own, `x2 + y`.
    """

    def __init__(
        self,
        parameters: Parameters,
        inputs: int,
        outputs: int,
        *,
        width: int,
        activation: str = "relu",
    ) -> None:
        super().__init__(name="conv_stack")
        self._gated = activation == "gatu"
        blocks = parameters.scope("conv_block")
        self.first = ConvBlock(blocks.scope("1_1"), inputs, width)
        second = ("1_tanh", "1_sigm") if self._gated else ("1_2",)
        self.second = [ConvBlock(blocks.scope(name), width, width) for name in second]
        last = parameters.scope("zeros")
        self.kernel = last.zeros("W", [width, outputs])
        self.b = last.zeros("b", [outputs])
        self.logs = last.zeros("logs", [outputs])

    def __call__(
        self, x: tf.Tensor, drop: Callable[[tf.Tensor], tf.Tensor] = lambda h: h
    ) -> tf.Tensor:
        h1 = drop(tf.nn.relu(self.first(x)))
        h2 = drop(self.activate([block(h1) for block in self.second]))
        return (_convolve(h2, self.kernel) + self.b) * tf.exp(3.0 * self.logs)

    def activate(self, second: list[tf.Tensor]) -> tf.Tensor:
        """Return h2 from the second layer's outputs, [..., width]."""
        if self._gated:
            return tf.tanh(second[0]) * tf.sigmoid(second[1])
        # For few rows, NumPy's call costs a tenth of TensorFlow's.
        return (
            np.maximum(second[0], 0) if isinstance(second[0], np.ndarray) else tf.nn.relu(second[0])
        )

    def initialize_from_data(self, x: tf.Tensor, typical_deviation: float) -> None:
        """Set the actnorms from a batch, see `ActNorm.initialize_from_data`."""
        h1 = tf.nn.relu(self.first.initialize_from_data(x, typical_deviation))
        for block in self.second:
            block.initialize_from_data(h1, typical_deviation=1.0)


class Coupling(VectorBijector):
    """Transform the second half of the channels, given the first half.

    The network maps [..., D // 2] to [..., outputs_per_channel * (D - D // 2)]. Further keywords of
    a subclass's `__init__` are keys of the flow's configuration, which it may check.
    """

    outputs_per_channel = 1

    def __init__(self, network: Network, dtype: tf.DType = tf.float32) -> None:
        self.network = network
        super().__init__(dtype, is_constant_jacobian=self.outputs_per_channel == 1)

    def initialize_from_data(self, x: tf.Tensor, typical_deviation: float) -> tf.Tensor:
        if initialize := getattr(self.network, "initialize_from_data", None):
            initialize(halves(x)[0], typical_deviation)
        return self.forward(x)


class AdditiveCoupling(Coupling):
    """Shift the second half by a function of the first.

        y[..., :D/2] = x[..., :D/2]
        y[..., D/2:] = x[..., D/2:] + network(x[..., :D/2])       log-determinant 0

    The network of a new coupling gives 0:

        >>> parameters = Parameters(seed=0, dtype=tf.float32)
        >>> network = ConvStack(parameters, inputs=2, outputs=2, width=32)
        >>> AdditiveCoupling(network).forward([[1.0, 2.0, 3.0, 4.0]]).numpy()
        array([[1., 2., 3., 4.]], dtype=float32)

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
    """Shift and scale the second half by functions of the first.

        shift, s = network(x[..., :D/2])[..., 0::2], network(x[..., :D/2])[..., 1::2]
        y[..., :D/2] = x[..., :D/2]
        y[..., D/2:] = (x[..., D/2:] + shift) * sigmoid(s + 2)

    The log-determinant is `sum(log_sigmoid(s + 2))`.

    Source: Dinh, Sohl-Dickstein and Bengio, Real NVP, ICLR 2017,
    <https://arxiv.org/abs/1605.08803>; Kingma and Dhariwal, Glow, NeurIPS 2018, section 3.3,
    <https://arxiv.org/abs/1807.03039>.
    """

    outputs_per_channel = 2

    def _shift_and_log_scale(self, x1: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        output = self.network(x1)
        return output[..., 0::2], tf.math.log_sigmoid(output[..., 1::2] + 2.0)

    def forward_and_log_det(self, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x1, x2 = halves(x)
        shift, log_scale = self._shift_and_log_scale(x1)
        return tf.concat([x1, (x2 + shift) * tf.exp(log_scale)], axis=-1), tf.reduce_sum(
            log_scale, axis=-1
        )

    def _forward(self, x: tf.Tensor) -> tf.Tensor:
        return self.forward_and_log_det(x)[0]

    def _inverse(self, y: tf.Tensor) -> tf.Tensor:
        y1, y2 = halves(y)
        shift, log_scale = self._shift_and_log_scale(y1)
        return tf.concat([y1, y2 * tf.exp(-log_scale) - shift], axis=-1)

    def _forward_log_det_jacobian(self, x: tf.Tensor) -> tf.Tensor:
        return self.forward_and_log_det(x)[1]
