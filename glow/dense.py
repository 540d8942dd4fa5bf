"""A flow's forward pass as dense layers alone, for libraries that have no couplings."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from glow.actnorm import ActNorm
from glow.bijector import VectorBijector
from glow.coupling import Coupling, halves
from glow.flow import Glow
from glow.folded import float64, kernel_and_bias, shift_and_factor
from glow.permutation import LearnedPermutation

# Powers of two, so that what passes through both activations is the same number again.
_SLOPE, _INVERSE = 0.5, 2.0


class DenseLayer(NamedTuple):
    """`prelu(x @ kernel + bias)`, where `prelu(y)` is y for y > 0, else `slope * y`.

    Attributes:
      kernel: float64 [in, out].
      bias: float64 [out].
      slope: above 0; 1 for no activation.
    """

    kernel: np.ndarray
    bias: np.ndarray
    slope: float = 1.0


def dense_layers(flow: Glow) -> list[DenseLayer]:
    """The layers, two per step and two, that give the `z` [n, D] of `flow.forward` from `u` [n, D] one after the other.

    A coupling's network has two rectified layers, through which all channels must be carried as they are. An activation
    with another slope below 0 is one-to-one, and the next one, of the inverse slope, undoes it. So the layers of a step
    have D units for the channels x, under slope s and then 1/s, and two for each hidden unit y of the network, as

        relu(y) = (prelu(y) + s * prelu(-y)) / (1 - s²).

    Actnorms and permutations are multiplied into the matrices, in float64. The first layer only adds the shift of the
    first actnorm: u may deviate by little beside it.

    Raises:
      ValueError: the flow has other couplings than additive ones with rectified units, see `has_dense_layers`.
    """
    if not has_dense_layers(flow):
        raise ValueError(f"found a flow of {flow.config}, expected additive couplings with relu")
    size, width = flow.event_size, flow.config.coupling_width
    mean = float64(flow.levels[0][0].b)
    layers = [DenseLayer(np.eye(size), mean)]
    # What each channel is of the units of the last layer; the last row is its bias.
    state = np.vstack([np.eye(size), -mean])

    def add_layer(columns: list[np.ndarray], slope: float = 1.0) -> None:
        matrix = np.concatenate(columns, axis=1)
        layers.append(DenseLayer(matrix[:-1], matrix[-1], slope))

    def rectified(slope: float) -> np.ndarray:
        """[D + 2 * width + 1, width]: relu(y) of the units of a layer of this slope."""
        one = np.eye(width) / (1.0 - slope**2)
        return np.vstack([np.zeros([size, width]), one, slope * one, np.zeros([1, width])])

    def advance(bijector: VectorBijector, channels: tf.Tensor) -> tf.Tensor:
        """The channels' numbers after the bijector, whose effect on them goes into `state` or into new layers."""
        nonlocal state
        order = channels.numpy()
        if isinstance(bijector, ActNorm):
            b, factor = shift_and_factor(bijector)
            state[-1, order] += b
            state[:, order] *= factor
        elif isinstance(bijector, LearnedPermutation):
            state[:, order] @= float64(bijector.forward(tf.eye(len(order), dtype=flow.dtype)))
        elif isinstance(bijector, Coupling):
            network = bijector.network
            read, moved = (half.numpy() for half in halves(channels))
            y = _affine(state[:, read], *kernel_and_bias(network.first))
            add_layer([state, y, -y], _SLOPE)
            h1 = rectified(_SLOPE)
            y = _affine(h1, *kernel_and_bias(network.second[0]))
            # h1 is not negative: no activation changes it.
            kept = [h1] if flow.config.coupling_residual else []
            add_layer([np.eye(len(h1), size), y, -y, *kept], _INVERSE)
            h = np.insert(rectified(_INVERSE), -1, np.eye(width), axis=0) if kept else rectified(_INVERSE)
            state = np.eye(len(h), size)
            factor = np.exp(3.0 * float64(network.logs))
            state[:, moved] += _affine(h, float64(network.kernel) * factor, float64(network.b) * factor)
        else:
            return bijector.forward(channels)
        return channels

    order = flow.walk(tf.range(size), advance).numpy()
    add_layer([state[:, order]])
    return layers


def has_dense_layers(flow: Glow) -> bool:
    """Whether the flow has additive couplings with rectified units, as in every shipped configuration."""
    return flow.config.coupling == "additive" and flow.config.activation == "relu"


def _affine(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """`x @ kernel + bias` where the rows of `x` are what units contribute, the last one the bias."""
    product = x @ kernel
    product[-1] += bias
    return product
