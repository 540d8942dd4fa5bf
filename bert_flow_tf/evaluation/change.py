"""What a flow changes of a space of embeddings, measured on sentences that it has not learned."""

import dataclasses

import numpy as np

from bert_flow_tf.evaluation.isotropy import Isotropy, gaussian_bits_per_dim, isotropy
from glow.flow import Glow

# Mean cosine of random pairs below which there is no cone to undo.
_NO_CONE = 0.2


@dataclasses.dataclass(frozen=True)
class Change:
    """Measures of the same n embeddings before and after a flow.

    Attributes:
      before, after: `Isotropy` of the embeddings, and of their latents.
      gaussian_bits_per_dim: bits per dimension of the embeddings under a Gaussian with diagonal covariance that is
        fitted to these embeddings themselves.
      flow_bits_per_dim: the same under the flow, which has not learned them.
    """

    before: Isotropy
    after: Isotropy
    gaussian_bits_per_dim: float
    flow_bits_per_dim: float

    def __str__(self) -> str:
        return (
            f"{self.before.embeddings:,} held-out sentences: mean cosine of random pairs {self.before.mean_cosine:.3f} "
            f"before the flow, {self.after.mean_cosine:.3f} with it; bits per dimension "
            f"{self.gaussian_bits_per_dim:.3f} under a diagonal Gaussian, {self.flow_bits_per_dim:.3f} under the flow"
        )

    @property
    def is_worth_it(self) -> bool:
        """Whether the embeddings lie in a cone: else a flow has nothing to undo (Li et al. 2020, section 3)."""
        return self.before.mean_cosine >= _NO_CONE


def change_by(flow: Glow, embeddings: np.ndarray) -> Change:
    """`Change` of the embeddings [n, D] of different sentences by a flow.

    Raises:
      UserError: as `isotropy`.
    """
    latents, bits = flow.forward_and_bits_per_dim(np.asarray(embeddings, np.float32))
    return Change(
        isotropy(embeddings),
        isotropy(latents.numpy()),
        gaussian_bits_per_dim(embeddings),
        float(np.mean(bits.numpy())),
    )
