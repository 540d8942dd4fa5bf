"""A flow's forward pass with its actnorms and reversals multiplied into the matrices beside them, for serving."""

import numpy as np
import tensorflow as tf

from glow.actnorm import ActNorm
from glow.bijector import VectorBijector
from glow.coupling import ConvBlock, Coupling, halves
from glow.flow import Glow


class FoldedFlow:
    """Callable from embeddings `u [n, D]` to the `z [n, D]` of `flow.forward`, in six operations per step or fewer.

    An actnorm scales and shifts each channel, a reversal renumbers them, and an additive coupling adds to half of them.
    So a channel of z is `(u + mean) * scale + shift` and what the couplings add, scaled likewise. With `x [n, D]` at
    the scale of z and in its order from the beginning, a step is

        h1 = relu(x @ K1 + b1)
        h2 = relu(h1 @ K2 + b2)
        x  = x + h2 @ K3

    where K1 has rows of zeros for the channels that the step's network does not read, and K3 columns of zeros for those
    that it does not move. They are multiplied together once, in float64, so that z differs from the flow's by the
    rounding of float32. They are constants: what the flow learns later does not reach them, see `is_current`.

    Raises:
      ValueError: the flow has affine couplings or learned permutations, see `can_fold`.
    """

    def __init__(self, flow: Glow) -> None:
        if not can_fold(flow):
            raise ValueError(f"found a flow of {flow.config}, expected additive couplings and reversals")
        self._folded_values = np.concatenate([variable.numpy().reshape(-1) for variable in flow.variables])
        # One read of all variables for `is_current`: a hundred of them take milliseconds.
        self._values = tf.function(
            lambda: tf.concat([tf.reshape(variable, [-1]) for variable in flow.variables], axis=0), autograph=False
        )
        self._fold(flow)

    def __call__(self, u: tf.Tensor) -> tf.Tensor:
        """The latents z [n, D] of the embeddings `u` [n, D]."""
        x = (tf.gather(u, self._order, axis=1) + self._mean) * self._scale + self._shift
        for first, second, last in self._steps:
            h1 = tf.nn.relu(_layer(x, first))
            x += self._activate(h1, [_layer(h1, layer) for layer in second]) @ last
        return x

    def is_current(self) -> bool:
        """Whether the flow's variables are still what was folded."""
        return np.array_equal(self._values().numpy(), self._folded_values, equal_nan=True)

    def _fold(self, flow: Glow) -> None:
        size, dtype = flow.event_size, flow.dtype.as_numpy_dtype
        # z is ((x + shift) * scale)[order], for an x [n, D] that is u plus what the couplings add.
        shift, scale, steps = np.zeros(size), np.ones(size), []

        def advance(bijector: VectorBijector, channels: tf.Tensor) -> tf.Tensor:
            """The channels' numbers after the bijector, whose effect on them goes into shift, scale or steps."""
            order = channels.numpy()
            if isinstance(bijector, ActNorm):
                b, factor = shift_and_factor(bijector)
                shift[order] += b / scale[order]
                scale[order] *= factor
            elif isinstance(bijector, Coupling):
                network = bijector.network
                read, moved = (half.numpy() for half in halves(channels))
                kernel, bias = kernel_and_bias(network.first)
                first = np.zeros([size, len(bias)])
                first[read] = scale[read, np.newaxis] * kernel
                factor = np.exp(3.0 * float64(network.logs)) / scale[moved]
                last = np.zeros([len(bias), size])
                last[:, moved] = float64(network.kernel) * factor
                second = [kernel_and_bias(block) for block in network.second]
                steps.append(((first, bias + shift @ first), second, last))
                shift[moved] += float64(network.b) * factor
            else:
                return bijector.forward(channels)
            return channels

        order = flow.walk(tf.range(size), advance).numpy()
        # What the first actnorm adds is added first, as the flow does: u may deviate by little beside it.
        mean = float64(flow.levels[0][0].b)
        self._order = order
        self._mean, self._scale = mean[order].astype(dtype), scale[order].astype(dtype)
        self._shift = ((shift - mean) * scale)[order].astype(dtype)
        self._activate = flow.levels[0][-1].network.activate
        self._steps = []
        for (kernel, bias), second, last in steps:
            # The same for an x that has its final shift and scale from the beginning.
            first = (kernel / scale[:, np.newaxis])[order], bias - shift @ kernel
            layers = [(kernel.astype(dtype), bias.astype(dtype)) for kernel, bias in (first, *second)]
            self._steps.append((layers[0], layers[1:], (last * scale)[:, order].astype(dtype)))


def can_fold(flow: Glow) -> bool:
    """Whether the flow has additive couplings and reversals, as in every shipped configuration."""
    return flow.config.coupling == "additive" and flow.config.permutation


def _layer(x: tf.Tensor, layer: tuple[np.ndarray, np.ndarray]) -> tf.Tensor:
    kernel, bias = layer
    # In this form TensorFlow makes one kernel of it and of the relu that follows.
    return tf.nn.bias_add(x @ kernel, bias)


def float64(variable: tf.Variable) -> np.ndarray:
    """The variable's value, in which what is multiplied together is rounded once, at the end."""
    return np.asarray(variable.numpy(), np.float64)


def shift_and_factor(actnorm: ActNorm) -> tuple[np.ndarray, np.ndarray]:
    """float64 [D], [D] of an actnorm: (x + b) * factor."""
    return float64(actnorm.b), np.exp(3.0 * float64(actnorm.logs))


def kernel_and_bias(block: ConvBlock) -> tuple[np.ndarray, np.ndarray]:
    """float64 [in, out], [out] of a convolution and the actnorm behind it, whose (x @ W + b) * factor they give."""
    b, factor = shift_and_factor(block.actnorm)
    return float64(block.kernel) * factor, b * factor
