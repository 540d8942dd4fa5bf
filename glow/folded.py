"""A flow's forward pass with actnorms and permutations folded into matrices."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from glow.bijectors import ActNorm, LearnedPermutation, VectorBijector
from glow.config import GlowConfig
from glow.coupling import ConvBlock, Coupling, halves

# The slopes of a step's two dense layers are powers of two, so that the second exactly undoes the
# first.
_SLOPE = 0.5
_INVERSE = 1.0 / _SLOPE

# These are the types of `Glow.walk` and `ConvStack.activate`.
Walk = Callable[[tf.Tensor, Callable[[VectorBijector, tf.Tensor], tf.Tensor]], tf.Tensor]
Activate = Callable[[list[tf.Tensor]], tf.Tensor]


class DenseLayer(NamedTuple):
    """`prelu(x @ kernel + bias)`, with `prelu(y) = y if y > 0 else slope * y`."""

    kernel: np.ndarray
    bias: np.ndarray
    slope: float = 1.0


class FoldedFlow:
    """Compute `flow.forward` in three or four matrix products per step.

    Actnorms and permutations are affine maps, so z is `(u + mean) @ W + shift` plus a linear map of
    each additive coupling's output. Without learned permutations, W only scales and reorders
    channels. `x [n, D]` starts as `(u + mean) @ W + shift`, and a step is

        h1 = relu(x @ K1 + b1)
        h2 = relu(h1 @ K2 + b2)
        x  = x + h2 @ K3

    The matrices are multiplied once, in float64, and do not follow later changes of the variables,
    see `is_current`. All couplings must be additive and all permutations reversals, as in every
    shipped configuration.
    """

    def __init__(
        self,
        variables: Sequence[tf.Variable],
        walk: Walk,
        event_size: int,
        activate: Activate,
    ) -> None:
        self._variables = variables
        self._folded_values = np.concatenate(
            [variable.numpy().reshape(-1) for variable in variables]
        )
        mean, matrix, shift, steps = _fold(walk, event_size)
        self._order = np.abs(matrix).argmax(axis=0)
        self._mean, self._scale, self._shift, self._steps = tf.nest.map_structure(
            lambda value: value.astype(variables[0].dtype.as_numpy_dtype),
            (mean[self._order], matrix[self._order, range(event_size)], shift, steps),
        )
        self._activate = activate

    def __call__(self, u: tf.Tensor) -> tf.Tensor:
        x = (tf.gather(u, self._order, axis=1) + self._mean) * self._scale + self._shift
        for first, second, last in self._steps:
            h1 = tf.nn.relu(_layer(x, first))
            x += self._activate([_layer(h1, layer) for layer in second]) @ last
        return x

    def of_array(self, u: np.ndarray) -> np.ndarray:
        """Return z of an array by NumPy, faster up to 64 rows."""
        x = (u[:, self._order] + self._mean) * self._scale + self._shift
        for first, second, last in self._steps:
            h1 = np.maximum(x @ first[0] + first[1], 0)
            x = (
                x
                + np.asarray(self._activate([h1 @ kernel + bias for kernel, bias in second])) @ last
            )
        return x

    def is_current(self) -> tf.Tensor:
        """Return a bool []: True if the variables have not changed."""
        values = tf.concat([tf.reshape(variable, [-1]) for variable in self._variables], axis=0)
        return tf.reduce_all(values == self._folded_values)


def dense_layers(walk: Walk, size: int, config: GlowConfig) -> list[DenseLayer]:
    """Return the walk of a flow, for [n, size], as dense layers.

    The first layer only adds the first actnorm's shift, because folding it would lose digits of a u
    that varies little. Two layers per step and a last one follow. A step's two layers must also
    pass on the D channels x unchanged: prelu with slope s and then prelu with slope 1/s is the
    identity. A layer has D units for x and two for each hidden unit y of the network, because

        relu(y) = (prelu(y) + s * prelu(-y)) / (1 - s²).

    Raises:
      ValueError: the couplings are not additive, or their activation is not relu; shipped
        configurations have both.
    """
    if (config.coupling, config.activation) != ("additive", "relu"):
        raise ValueError(
            f"{config.coupling} couplings of activation {config.activation} are not dense layers"
        )
    width = config.coupling_width
    mean, matrix, shift, steps = _fold(walk, size)
    layers = [DenseLayer(np.eye(size), mean)]
    # Column i computes channel i of x from the previous layer's units; the last row is the bias.
    state = np.vstack([matrix, shift])

    def add_layer(columns: list[np.ndarray], slope: float = 1.0) -> None:
        matrix = np.concatenate(columns, axis=1)
        layers.append(DenseLayer(matrix[:-1], matrix[-1], slope))

    def rectified(slope: float) -> np.ndarray:
        """Return the matrix [units, width] that gives relu(y) from a layer's units."""
        identity = np.eye(width) / (1.0 - slope**2)
        return np.vstack(
            [np.zeros([size, width]), identity, slope * identity, np.zeros([1, width])]
        )

    for first, (second,), last in steps:
        y = _affine(state, *first)
        add_layer([state, y, -y], _SLOPE)
        h1 = rectified(_SLOPE)
        y = _affine(h1, *second)
        add_layer([np.eye(len(h1), size), y, -y], _INVERSE)
        state = np.eye(len(h1), size) + rectified(_INVERSE) @ last
    add_layer([state])
    return layers


def _fold(walk: Walk, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple]]:
    """Return mean, W, shift and `((K1, b1), [(K2, b2), ...], K3)` per coupling."""
    # A step's input is x @ matrix + shift. Here x [n, D] is u plus all earlier couplings' outputs,
    # mapped to u's space.
    matrix = np.eye(size)
    inverse = np.eye(size)
    shift = np.zeros(size)
    steps = []
    means: list[np.ndarray] = []

    def advance(bijector: VectorBijector, channels: tf.Tensor) -> tf.Tensor:
        order = channels.numpy()
        if isinstance(bijector, ActNorm):
            b, factor = _shift_and_factor(bijector)
            means.append(b)
            shift[order] = (shift[order] + b) * factor
            matrix[:, order] *= factor
            inverse[order] /= factor[:, np.newaxis]
        elif isinstance(bijector, LearnedPermutation):
            identity = tf.eye(len(order), dtype=bijector.dtype)
            weights = _float64(bijector.forward(identity))
            inverse_weights = _float64(bijector.inverse(identity))
            shift[order] @= weights
            matrix[:, order] @= weights
            inverse[order] = inverse_weights @ inverse[order]
        elif isinstance(bijector, Coupling):
            # Only flows of `ConvStack` are folded.
            network: Any = bijector.network
            read, moved = (half.numpy() for half in halves(channels))
            kernel, bias = _kernel_and_bias(network.first)
            factor = np.exp(3.0 * _float64(network.logs))
            first = (matrix[:, read] @ kernel, bias + shift[read] @ kernel)
            second = [_kernel_and_bias(block) for block in network.second]
            last = _float64(network.kernel) * factor
            steps.append((first, second, last @ inverse[moved]))
            shift[moved] += _float64(network.b) * factor
        else:
            return bijector.forward(channels)
        return channels

    order = walk(tf.range(size), advance).numpy()
    matrix = matrix[:, order]
    inverse = inverse[order]
    shift = shift[order]
    # From here on, x is in z's space, and the first shift has been added to it.
    steps = [
        ((inverse @ kernel, bias - shift @ (inverse @ kernel)), second, last @ matrix)
        for (kernel, bias), second, last in steps
    ]
    return means[0], matrix, shift - means[0] @ matrix, steps


def _layer(x: tf.Tensor, layer: tuple[np.ndarray, np.ndarray]) -> tf.Tensor:
    # TensorFlow fuses this form with the relu that follows.
    return tf.nn.bias_add(x @ layer[0], layer[1])


def _affine(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    product = x @ kernel
    product[-1] += bias
    return product


def _float64(variable: tf.Variable) -> np.ndarray:
    # In float64, only the products of matrices are rounded to float32.
    return np.asarray(variable.numpy(), np.float64)


def _shift_and_factor(actnorm: ActNorm) -> tuple[np.ndarray, np.ndarray]:
    return _float64(actnorm.b), np.exp(3.0 * _float64(actnorm.logs))


def _kernel_and_bias(block: ConvBlock) -> tuple[np.ndarray, np.ndarray]:
    b, factor = _shift_and_factor(block.actnorm)
    return _float64(block.kernel) * factor, b * factor
