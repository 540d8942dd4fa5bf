"""A flow whose couplings have a network of one's own, here with a residual block."""

import numpy as np

from glow import FlowCalibrator  # first: it imports TensorFlow without its messages
import tensorflow as tf
from glow.config import GlowConfig


def residual_network(parameters, inputs, outputs, hidden=16):
    """Return a function from [..., inputs] to [..., outputs]; `hidden` is a configuration's key."""
    first = parameters.normal("first", [inputs, hidden], stddev=0.05)
    second = parameters.normal("second", [hidden, hidden], stddev=0.05)
    last = parameters.zeros("last", [hidden, outputs])

    def network(x):
        h = tf.nn.gelu(tf.tensordot(x, first, 1))
        return tf.tensordot(h + tf.nn.gelu(tf.tensordot(h, second, 1)), last, 1)

    return network


if __name__ == "__main__":
    # A saved flow names its network's module, so it needs one that others can import.
    import own_network

    config = GlowConfig(n_levels=2, network=own_network.residual_network, own={"hidden": 8})
    embeddings = np.random.default_rng(0).normal(size=(512, 16)) ** 3
    calibrator = FlowCalibrator(config, epochs=20, show_progress_bar=False).fit(embeddings)
    print(f"{calibrator.losses_[0]:.2f} to {calibrator.losses_[-1]:.2f} bits per dimension")
    calibrator.save("residual_flow")
