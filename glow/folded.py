"""A flow's forward pass with its actnorms and reversals multiplied into the matrices beside them, for serving."""

import numpy as np
import tensorflow as tf


class FoldedFlow:
    """Callable from embeddings `u [n, D]` to the `z [n, D]` of `flow.forward`, in six operations a step or fewer.

    An actnorm scales and shifts each channel, a reversal renumbers them, and an additive coupling adds to half of them.
    So a channel of z is `(u + mean) * scale + shift` and what the couplings add, scaled likewise. With `x [n, D]` at
    the scale of z and in its order from the beginning, a step is

        h1 = relu(x @ K1 + b1)
        h2 = relu(h1 @ K2 + b2)
        x  = x + h2 @ K3

    where K1 has rows of zeros for the channels that the step's network does not read, and K3 columns of zeros for those
    that it does not move. They are multiplied together once, in float64, so that z differs from the flow's by the
    rounding of float32. They are constants: what the flow learns later does not reach them, see `is_current`.

    Args:
      flow: `glow.flow.Glow` that `can_fold`.

    Raises:
      ValueError: it has affine couplings or learned permutations.
    """

    def __init__(self, flow):
        if not can_fold(flow):
            raise ValueError(f"found a flow of {flow.config}, expected additive couplings and reversals")
        self._config, self._dtype = flow.config, flow.dtype.as_numpy_dtype
        values = {path: np.asarray(variable.numpy(), np.float64) for path, variable in flow.variables_by_path.items()}
        self._folded_values = np.concatenate([value.reshape(-1) for value in values.values()])
        # One read of all variables: a hundred of them take milliseconds.
        self._values = tf.function(
            lambda: tf.concat([tf.reshape(variable, [-1]) for variable in flow.variables_by_path.values()], axis=0),
            autograph=False,
        )
        self._fold(values, flow.event_size)

    def __call__(self, u):
        """The latents z [n, D] of the embeddings `u` [n, D]."""
        x = (tf.gather(u, self._order, axis=1) + self._mean) * self._scale + self._shift
        for first, second, last in self._steps:
            h1 = tf.nn.relu(_layer(x, first))
            h2 = [_layer(h1, layer) for layer in second]
            h = tf.tanh(h2[0]) * tf.sigmoid(h2[1]) if len(h2) > 1 else tf.nn.relu(h2[0])
            x += (h + h1 if self._config.coupling_residual else h) @ last
        return x

    def is_current(self):
        """Whether the flow's variables are still what was folded."""
        return np.array_equal(self._values().numpy().astype(np.float64), self._folded_values, equal_nan=True)

    def _fold(self, values, size):
        """Sets the constants from the flow's variables by path, float64."""
        order, shift, scale, steps = _unscaled(self._config, values, size)
        # What the first actnorm adds is added first, as the flow does: u may deviate by little beside it.
        mean = values["revnet_0/revnet_step_0/actnorm/actnorm_center/b"]
        self._order = order
        self._mean, self._scale = self._cast(mean[order]), self._cast(scale[order])
        self._shift = self._cast(((shift - mean) * scale)[order])
        self._steps = []
        for (kernel, bias), second, last in steps:
            # The same for an x that has its final shift and scale from the beginning.
            first = (kernel / scale[:, np.newaxis])[order], bias - shift @ kernel
            layers = [(self._cast(kernel), self._cast(bias)) for kernel, bias in (first, *second)]
            self._steps.append((layers[0], layers[1:], self._cast((last * scale)[:, order])))

    def _cast(self, array):
        return array.astype(self._dtype)


def can_fold(flow):
    """Whether the flow has additive couplings and reversals, as in every shipped configuration."""
    return flow.config.coupling == "additive" and flow.config.permutation


def _unscaled(config, values, size):
    """(order, shift, scale, steps) of the flow over an x [n, size] that is u plus what couplings add.

    z is `((x + shift) * scale)[order]`. A step is ((K1, b1), [(K2, b2), ...], K3), with a row of K1 and a column of K3
    for every channel of x.
    """
    second = ("1_tanh", "1_sigm") if config.activation == "gatu" else ("1_2",)
    shift, scale = np.zeros(size), np.ones(size)
    # Channels of u: those of the level, in its order, and those that have left.
    order, left, steps = np.arange(size), [], []
    for level in range(config.n_levels):
        for step in range(config.depth):
            path = f"revnet_{level}/revnet_step_{step}"
            b, factor = _actnorm(values, f"{path}/actnorm")
            shift[order] += b / scale[order]
            scale[order] *= factor
            order = order[::-1]
            read, moved = _halves(order)
            network = f"{path}/additive/nn"
            kernel, bias = _block(values, f"{network}/conv_block/1_1")
            first = np.zeros([size, config.coupling_width])
            first[read] = scale[read, np.newaxis] * kernel
            factor = np.exp(3.0 * values[f"{network}/zeros/logs"]) / scale[moved]
            last = np.zeros([config.coupling_width, size])
            last[:, moved] = values[f"{network}/zeros/W"] * factor
            layers = [_block(values, f"{network}/conv_block/{name}") for name in second]
            steps.append(((first, bias + shift @ first), layers, last))
            shift[moved] += values[f"{network}/zeros/b"] * factor
        if level < config.n_levels - 1:
            order, done = _halves(order)
            left.append(done)
    return np.concatenate([*left, order]), shift, scale, steps


def _halves(channels):
    """The channels as in `coupling.halves`: those that a network reads and that go on to the next level; the others."""
    return channels[: len(channels) // 2], channels[len(channels) // 2 :]


def _layer(x, layer):
    kernel, bias = layer
    # In this form TensorFlow makes one kernel of it and of the relu that follows.
    return tf.nn.bias_add(x @ kernel, bias)


def _actnorm(values, path):
    """Shift b and factor exp(3 logs) of an actnorm."""
    return values[f"{path}/actnorm_center/b"], np.exp(3.0 * values[f"{path}/actnorm_scale/logs"])


def _block(values, path):
    """Kernel and bias of a convolution and the actnorm behind it: (x @ W + b) * factor."""
    b, factor = _actnorm(values, f"{path}/actnorm")
    return values[f"{path}/W"] * factor, b * factor
