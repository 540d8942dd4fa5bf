"""Measures of how evenly embeddings use the directions of their space.

Sources: Li et al. 2020, section 3, on the anisotropy of BERT's space; Mu and Viswanath, "All-but-the-top", ICLR 2018,
https://arxiv.org/abs/1702.01417, for the ratio of partition functions; Roy and Vetterli, "The effective rank", EUSIPCO
2007; Ethayarajh, EMNLP 2019, for the mean cosine.
"""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bert_flow_tf.errors import UserError
from glow.embeddings import negligible_channels

if TYPE_CHECKING:
    from glow.flow import Glow

# Mean cosine of random pairs below which there is no cone to undo.
_NO_CONE = 0.2


@dataclasses.dataclass(frozen=True)
class Isotropy:
    """Measures of n embeddings in D channels; "isotropic" means that no direction stands out.

    Attributes:
      embeddings, channels: n, D.
      constant_channels: channels that vary by rounding only, see `glow.embeddings.negligible_channels`.
      mean_cosine: mean over all pairs of different embeddings; near 0 when isotropic.
      mean_share: the mean vector's share of the mean squared norm; near 0 when isotropic.
      top_share, centred_top_share: the top singular vector's share of it, and of the variance; 1 / D when isotropic.
      participation_ratio: (sum of variances)^2 / sum of squared variances, over principal directions; D when isotropic.
      effective_rank: exp of the entropy of the centred singular values, taken as shares; D when isotropic.
      partition_ratio: min Z(c) / max Z(c), in (0, 1], where Z(c) is the sum over embeddings x of exp(c . x), scaled to
        a mean squared norm of 1, and c are the unit singular vectors, with both signs; 1 when isotropic.
      spectrum, centred_spectrum: singular values over sqrt(n), descending, [min(n, D)].
    """

    embeddings: int
    channels: int
    constant_channels: int
    mean_cosine: float
    mean_share: float
    top_share: float
    centred_top_share: float
    participation_ratio: float
    effective_rank: float
    partition_ratio: float
    spectrum: list[float] = dataclasses.field(repr=False)
    centred_spectrum: list[float] = dataclasses.field(repr=False)


def measure_isotropy(embeddings: npt.ArrayLike) -> Isotropy:
    """Return the `Isotropy` of embeddings [n, D]; `UserError` for fewer than 2, zero, not finite or equal ones."""
    from scipy import stats

    x = _checked(embeddings)
    n, mean = len(x), x.mean(axis=0)
    # Of R, which is as small as D allows: the left singular vectors of tall embeddings cost most and are not needed.
    _, singular, directions = np.linalg.svd(np.linalg.qr(x, mode="r"), full_matrices=False)
    spectrum = singular / np.sqrt(n)
    centred_spectrum = np.linalg.svd(np.linalg.qr(x - mean, mode="r"), compute_uv=False) / np.sqrt(n)
    power, variance = spectrum**2, centred_spectrum**2
    # The squared norm of the sum of n unit vectors is n plus their cosines over all ordered pairs.
    total = (x / np.linalg.norm(x, axis=1, keepdims=True)).sum(axis=0)
    projections = x @ directions.T / np.sqrt(power.sum())
    z = np.concatenate([np.exp(projections).sum(axis=0), np.exp(-projections).sum(axis=0)])
    return Isotropy(
        embeddings=n,
        channels=x.shape[1],
        constant_channels=int(negligible_channels(x).sum()),
        mean_cosine=float((total @ total - n) / (n * (n - 1))),
        mean_share=float(mean @ mean / power.sum()),
        top_share=float(power[0] / power.sum()),
        centred_top_share=float(variance[0] / variance.sum()),
        participation_ratio=float(variance.sum() ** 2 / np.sum(variance**2)),
        effective_rank=float(np.exp(stats.entropy(centred_spectrum))),
        partition_ratio=float(z.min() / z.max()),
        spectrum=spectrum.tolist(),
        centred_spectrum=centred_spectrum.tolist(),
    )


def gaussian_bits_per_dim(embeddings: npt.ArrayLike) -> float:
    """Return the bits per dimension of embeddings [n, D] under a diagonal Gaussian fitted to them.

    This is the mean of log2(2 pi e variance) / 2 over the channels that vary. Raises as `measure_isotropy`.
    """
    x = _checked(embeddings)
    variance = x.var(axis=0)[~negligible_channels(x)]
    return float(np.mean(0.5 * np.log2(2 * np.pi * np.e * variance)))


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


def change_by(flow: "Glow", embeddings: np.ndarray) -> Change:
    """Return the `Change` of the embeddings [n, D] of different sentences by a flow; raises as `measure_isotropy`."""
    latents, bits = flow.forward_and_bits_per_dim(np.asarray(embeddings, np.float32))
    before, after = measure_isotropy(embeddings), measure_isotropy(latents.numpy())
    return Change(before, after, gaussian_bits_per_dim(embeddings), float(np.mean(bits.numpy())))


def _checked(embeddings: npt.ArrayLike) -> np.ndarray:
    x = np.asarray(embeddings, np.float64)
    if x.ndim != 2 or len(x) < 2:
        raise UserError(f"embeddings of shape {x.shape}, expected [n, D] with n of 2 or more")
    bad = np.flatnonzero(~(np.isfinite(x).all(axis=1) & x.any(axis=1)))
    if bad.size:
        raise UserError(f"embedding {bad[0] + 1} of {len(x)} is zero or not finite, expected a direction")
    if not np.any(x != x[0]):
        raise UserError(f"all {len(x)} embeddings are the same, expected different sentences")
    return x
