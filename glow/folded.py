"""A flow's forward pass with actnorms and permutations folded into matrices."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from glow.affine import AffineMap
from glow.bijectors import ActNorm, LearnedPermutation, VectorBijector
from glow.coupling import ConvBlock, Coupling, halves
from glow.flow import Glow

# A step's dense layers have these slopes: powers of two, so that a number that passes both is exactly the same again.
_SLOPE, _INVERSE = 0.5, 2.0


class DenseLayer(NamedTuple):
    """`prelu(x @ kernel + bias)`, with `prelu(y) = y if y > 0 else slope * y`."""

    kernel: np.ndarray
    bias: np.ndarray
    slope: float = 1.0


class FoldedFlow:
    """Compute `flow.forward` in at most six operations per step.

    Between two additive couplings every step is an affine map. So z is `(u + mean) @ W + shift` plus the outputs of the
    couplings, mapped likewise; without learned permutations W scales and reorders. With `x [n, D]` in the space of z
    from the beginning, a step is

        h1 = relu(x @ K1 + b1)
        h2 = relu(h1 @ K2 + b2)
        x  = x + h2 @ K3

    The matrices are multiplied once, in float64, and are constants: later changes of the variables do not reach them.

    Raises:
      ValueError: the flow has affine couplings or learned permutations, see `can_fold`.
    """

    def __init__(self, flow: Glow) -> None:
        if not can_fold(flow):
            raise ValueError(f"found a flow of {flow.config}, expected additive couplings and reversals")
        self._folded_values = np.concatenate([variable.numpy().reshape(-1) for variable in flow.variables])
        # `is_current` reads all variables in one call: a hundred single reads take milliseconds.
        self._values = tf.function(
            lambda: tf.concat([tf.reshape(variable, [-1]) for variable in flow.variables], axis=0), autograph=False
        )
        mean, matrix, shift, steps = _fold(flow)
        self._order = np.abs(matrix).argmax(axis=0)
        self._mean, self._scale, self._shift, self._steps = tf.nest.map_structure(
            lambda value: value.astype(flow.dtype.as_numpy_dtype),
            (mean[self._order], matrix[self._order, range(len(matrix))], shift, steps),
        )
        self._activate = flow.levels[0][-1].network.activate

    def __call__(self, u: tf.Tensor) -> tf.Tensor:
        x = (tf.gather(u, self._order, axis=1) + self._mean) * self._scale + self._shift
        for first, second, last in self._steps:
            h1 = tf.nn.relu(_layer(x, first))
            x += self._activate(h1, [_layer(h1, layer) for layer in second]) @ last
        return x

    def is_current(self) -> bool:
        return np.array_equal(self._values().numpy(), self._folded_values, equal_nan=True)


def can_fold(flow: Glow | AffineMap) -> bool:
    """True for additive couplings and reversals, as in every shipped configuration."""
    return isinstance(flow, Glow) and flow.config.coupling == "additive" and flow.config.permutation


def dense_layers(flow: Glow | AffineMap) -> list[DenseLayer]:
    """Return `flow.forward` as dense layers, two per step and two more.

    The two rectified layers of a network must carry all channels unchanged. A slope s below 0 is undone by the next
    layer's 1/s. So a layer has D units for the channels x, and two for each hidden unit y of the network, as

        relu(y) = (prelu(y) + s * prelu(-y)) / (1 - s²).

    The first layer only adds the shift of the first actnorm, because u may deviate by little beside it.

    Raises:
      ValueError: the flow has other couplings than additive ones with rectified units, see `has_dense_layers`.
    """
    if isinstance(flow, AffineMap):
        mean, matrix = (_float64(flow.variables_by_path[name]) for name in ("mean", "matrix"))
        return [DenseLayer(np.eye(len(mean)), -mean), DenseLayer(matrix, np.zeros(len(mean)))]
    if not has_dense_layers(flow):
        raise ValueError(f"found a flow of {flow.config}, expected additive couplings with relu")
    size, width = flow.event_size, flow.config.coupling_width
    mean, matrix, shift, steps = _fold(flow)
    layers = [DenseLayer(np.eye(size), mean)]
    # Each column is a channel of x as a sum of the last layer's units; the last row is the bias.
    state = np.vstack([matrix, shift])

    def add_layer(columns: list[np.ndarray], slope: float = 1.0) -> None:
        matrix = np.concatenate(columns, axis=1)
        layers.append(DenseLayer(matrix[:-1], matrix[-1], slope))

    def rectified(slope: float) -> np.ndarray:
        """Return relu(y) as sums of a layer's units, [units, width]."""
        one = np.eye(width) / (1.0 - slope**2)
        return np.vstack([np.zeros([size, width]), one, slope * one, np.zeros([1, width])])

    for first, (second,), last in steps:
        y = _affine(state, *first)
        add_layer([state, y, -y], _SLOPE)
        h1 = rectified(_SLOPE)
        y = _affine(h1, *second)
        # h1 is not negative: no activation changes it.
        kept = [h1] if flow.config.coupling_residual else []
        add_layer([np.eye(len(h1), size), y, -y, *kept], _INVERSE)
        h = np.insert(rectified(_INVERSE), -1, np.eye(width), axis=0) if kept else rectified(_INVERSE)
        state = np.eye(len(h), size) + h @ last
    add_layer([state])
    return layers


def has_dense_layers(flow: Glow) -> bool:
    """True for additive couplings with rectified units, as in every shipped configuration."""
    return flow.config.coupling == "additive" and flow.config.activation == "relu"


def _fold(flow: Glow) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[tuple]]:
    """Return mean, W, shift and `((K1, b1), [(K2, b2), ...], K3)` per coupling."""
    size = flow.event_size
    # A step's input is x @ matrix + shift, for an x [n, D] that is u and the couplings' additions, mapped back to u.
    matrix, inverse, shift = np.eye(size), np.eye(size), np.zeros(size)
    steps = []

    def advance(bijector: VectorBijector, channels: tf.Tensor) -> tf.Tensor:
        order = channels.numpy()
        if isinstance(bijector, ActNorm):
            b, factor = _shift_and_factor(bijector)
            shift[order] = (shift[order] + b) * factor
            matrix[:, order] *= factor
            inverse[order] /= factor[:, np.newaxis]
        elif isinstance(bijector, LearnedPermutation):
            one = tf.eye(len(order), dtype=flow.dtype)
            there, back = _float64(bijector.forward(one)), _float64(bijector.inverse(one))
            shift[order] @= there
            matrix[:, order] @= there
            inverse[order] = back @ inverse[order]
        elif isinstance(bijector, Coupling):
            network = bijector.network
            read, moved = (half.numpy() for half in halves(channels))
            kernel, bias = _kernel_and_bias(network.first)
            factor = np.exp(3.0 * _float64(network.logs))
            first, last = (matrix[:, read] @ kernel, bias + shift[read] @ kernel), _float64(network.kernel) * factor
            steps.append((first, [_kernel_and_bias(block) for block in network.second], last @ inverse[moved]))
            shift[moved] += _float64(network.b) * factor
        else:
            return bijector.forward(channels)
        return channels

    order = flow.walk(tf.range(size), advance).numpy()
    mean = _float64(flow.levels[0][0].b)
    matrix, inverse, shift = matrix[:, order], inverse[order], shift[order]
    # The same for an x that is mapped to z's space at the beginning, and whose first shift is added before.
    steps = [
        ((inverse @ kernel, bias - shift @ (inverse @ kernel)), second, last @ matrix)
        for (kernel, bias), second, last in steps
    ]
    return mean, matrix, shift - mean @ matrix, steps


def _layer(x: tf.Tensor, layer: tuple[np.ndarray, np.ndarray]) -> tf.Tensor:
    # TensorFlow fuses this form and the relu that follows into one kernel.
    return tf.nn.bias_add(x @ layer[0], layer[1])


def _affine(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    product = x @ kernel
    product[-1] += bias
    return product


def _float64(variable: tf.Variable) -> np.ndarray:
    # The matrices are multiplied in float64 so that only the products are rounded.
    return np.asarray(variable.numpy(), np.float64)


def _shift_and_factor(actnorm: ActNorm) -> tuple[np.ndarray, np.ndarray]:
    return _float64(actnorm.b), np.exp(3.0 * _float64(actnorm.logs))


def _kernel_and_bias(block: ConvBlock) -> tuple[np.ndarray, np.ndarray]:
    b, factor = _shift_and_factor(block.actnorm)
    return _float64(block.kernel) * factor, b * factor
