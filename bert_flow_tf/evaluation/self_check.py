"""Whether a flow does what its equations say, on this machine: for where the golden values of the TF1 code are not."""

import numpy as np
import tensorflow as tf

from glow.config import GlowConfig
from glow.flow import Glow
from glow.folded import FoldedFlow

# Channels, sentences.
_SIZE, _ROWS = 24, 8


def self_check(seed: int = 1234) -> list[tuple[str, float, float]]:
    """Tuples of what is checked, its largest deviation, and the limit of that.

    Of the paper's flow, with weights that are drawn: z and back; the log-density by the change of variables (its
    Section 3.1) with the determinant of the Jacobian that TensorFlow differentiates; and the folded form in which
    `encode` uses it.
    """
    rng = np.random.default_rng(seed)
    flow = Glow(GlowConfig.from_name("config_l3_d3_w32"), _SIZE, seed=seed)
    u = tf.constant(rng.standard_normal((_ROWS, _SIZE)), tf.float32)
    flow.initialize_from_data(u)
    for variable in flow.trainable_variables:
        variable.assign_add(0.05 * rng.standard_normal(variable.shape).astype("float32"))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(u)
        z = flow.forward(u)
    log_det = np.linalg.slogdet(tape.batch_jacobian(z, u).numpy().astype("float64"))[1]
    normal = -0.5 * np.sum(z.numpy().astype("float64") ** 2, axis=1) - _SIZE / 2 * np.log(2 * np.pi)
    density = flow.log_prob(u).numpy()
    checked = {
        "from x to z and back": flow.inverse(z).numpy() - u.numpy(),
        "log-density beside its Jacobian's, relative": (normal + log_det) / density - 1,
        "folded as encode uses it": FoldedFlow(flow)(u).numpy() - z.numpy(),
    }
    return [(f"the flow's equations, {what}", float(np.abs(off).max()), 1e-4) for what, off in checked.items()]
