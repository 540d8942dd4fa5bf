"""A flow's effect on the space of embeddings, and a check of its equations."""

import dataclasses

import numpy as np
import tensorflow as tf

from bert_flow_tf.evaluation.isotropy import Isotropy, gaussian_bits_per_dim, measure_isotropy
from glow.config import GlowConfig
from glow.flow import Glow
from glow.folded import FoldedFlow

# Mean cosine of random pairs below which there is no cone to undo.
_NO_CONE = 0.2


@dataclasses.dataclass(frozen=True)
class Change:
    """Measures of the same n embeddings, which the flow has not learned, before and after it.

    Bits per dimension are the embeddings', under a diagonal Gaussian fitted to them, and under the flow.
    """

    before: Isotropy
    after: Isotropy
    gaussian_bits_per_dim: float
    flow_bits_per_dim: float

    def __str__(self) -> str:
        cosines = f"{self.before.mean_cosine:.3f} before the flow, {self.after.mean_cosine:.3f} with it"
        bits = f"{self.gaussian_bits_per_dim:.3f} by a diagonal Gaussian, {self.flow_bits_per_dim:.3f} by the flow"
        sentences = f"{self.before.embeddings:,} held-out sentences"
        return f"{sentences}: mean cosine of random pairs {cosines}; bits per dimension {bits}"

    @property
    def is_worth_it(self) -> bool:
        """True if the embeddings lie in a cone, which a flow can undo (Li et al. 2020, section 3)."""
        return self.before.mean_cosine >= _NO_CONE


def change_by(flow: Glow, embeddings: np.ndarray) -> Change:
    """Return the `Change` of the embeddings [n, D] of different sentences by a flow; raises as `measure_isotropy`."""
    latents, bits = flow.forward_and_bits_per_dim(np.asarray(embeddings, np.float32))
    before, after = measure_isotropy(embeddings), measure_isotropy(latents.numpy())
    return Change(before, after, gaussian_bits_per_dim(embeddings), float(np.mean(bits.numpy())))


def self_check(seed: int = 1234) -> list[tuple[str, float, float]]:
    """Check the paper's flow on this machine; return tuples of what, largest deviation, and limit.

    With random weights: z and back; the log-density by the change of variables (Li et al. 2020, section 3.1) with the
    determinant of TensorFlow's Jacobian; and the folded form that `encode` uses.
    """
    rng, size = np.random.default_rng(seed), 24
    flow = Glow(GlowConfig.from_name("config_l3_d3_w32"), size, seed=seed)
    u = tf.constant(rng.standard_normal((8, size)), tf.float32)
    flow.initialize_from_data(u)
    for variable in flow.trainable_variables:
        variable.assign_add(0.05 * rng.standard_normal(variable.shape).astype("float32"))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(u)
        z = flow.forward(u)
    log_det = np.linalg.slogdet(tape.batch_jacobian(z, u).numpy().astype("float64"))[1]
    normal = -0.5 * np.sum(z.numpy().astype("float64") ** 2, axis=1) - size / 2 * np.log(2 * np.pi)
    checked = {
        "from x to z and back": flow.inverse(z).numpy() - u.numpy(),
        "log-density beside its Jacobian's, relative": (normal + log_det) / flow.log_prob(u).numpy() - 1,
        "folded as encode uses it": FoldedFlow(flow)(u).numpy() - z.numpy(),
    }
    return [(f"the flow's equations, {what}", float(np.abs(off).max()), 1e-4) for what, off in checked.items()]
