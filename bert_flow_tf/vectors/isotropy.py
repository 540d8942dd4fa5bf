"""Measures of how evenly embeddings use the directions of their space.

Sources: Li et al. 2020, section 3, on the anisotropy of BERT's space; Mu and Viswanath,
"All-but-the-top", ICLR 2018, https://arxiv.org/abs/1702.01417, for the ratio of partition
functions; Roy and Vetterli, "The effective rank", EUSIPCO 2007; Ethayarajh, EMNLP 2019, for the
mean cosine; Rudman et al., "IsoScore", Findings of ACL 2022, https://arxiv.org/abs/2108.07344; Wang
and Isola, ICML 2020, https://arxiv.org/abs/2005.10242, for alignment and uniformity.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.vectors.similarities import mean_cosine, normalized
from glow.constant_channels import negligible_channels

# The edges of 200 equal bins.
COSINE_BINS = np.linspace(-1, 1, 201)
# 4,000 rows have 8 million pairs.
_MOST_COUNTED = 4000
# The cosines of 1,000 rows with all are in memory at once; 10,000 rows take seconds.
_ROWS = 1000
_MOST_ROWS = 10_000
# SimCSE's authors take pairs with a score higher than 4, of 5, as positive.
_POSITIVE = 0.8
_HIGHEST_SCORE = 5.0


@dataclasses.dataclass(frozen=True)
class Isotropy:
    """Measures of n embeddings in D channels.

    Attributes:
      embeddings, channels: n and D.
      constant_channels: number of channels that vary only by rounding, see
        `glow.constant_channels.negligible_channels`.
      mean_cosine: mean over all pairs of different embeddings; near 0 when isotropic.
      mean_share: the mean vector's share of the mean squared norm; near 0 when isotropic.
      top_share, centred_top_share: the top singular vector's share of the mean squared norm, and of
        the variance; 1 / D when isotropic.
      participation_ratio: (sum of variances)^2 / sum of squared variances, over principal
        directions; D when isotropic.
      effective_rank: exp of the entropy of the centred singular values' shares; D when isotropic.
      partition_ratio: min Z(c) / max Z(c), in (0, 1], over the unit singular vectors c with both
        signs; Z(c) is the sum of exp(c . x) over the embeddings x, scaled to a mean squared norm of
        1; 1 when isotropic.
      iso_score: (participation ratio - 1) / (D - 1); 1 when isotropic, 0 in one direction; None for
        one channel.
      uniformity: log of the mean of exp(-2 d^2) over pairs of embeddings of norm 1, d their
        distance; 0 if all are alike, near -4 when isotropic in many channels.
      spectrum, centred_spectrum: singular values over sqrt(n), descending, [min(n, D)].
      cosine_counts: pairs of different embeddings in each of `COSINE_BINS`, of 4,000 random rows
        if there are more.
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
    iso_score: float | None
    uniformity: float
    cosine_counts: list[int] = dataclasses.field(repr=False)


def measure_isotropy(embeddings: npt.ArrayLike) -> Isotropy:
    """Return the `Isotropy` of two or more embeddings [n, D]."""
    from scipy import stats

    x = _checked(embeddings)
    n = len(x)
    mean = x.mean(axis=0)
    # R of the QR decomposition has the same singular values and right vectors as x, and fewer rows,
    # so SVD is faster.
    _, singular, directions = np.linalg.svd(np.linalg.qr(x, mode="r"), full_matrices=False)
    spectrum = singular / np.sqrt(n)
    centred_spectrum = np.linalg.svd(np.linalg.qr(x - mean, mode="r"), compute_uv=False) / np.sqrt(
        n
    )
    power, variance = spectrum**2, centred_spectrum**2
    units = normalized(x)
    projections = x @ directions.T / np.sqrt(power.sum())
    z = np.concatenate([np.exp(projections).sum(axis=0), np.exp(-projections).sum(axis=0)])
    ratio = participation_ratio(variance)
    channels = x.shape[1]
    return Isotropy(
        embeddings=n,
        channels=channels,
        constant_channels=int(negligible_channels(x).sum()),
        mean_cosine=mean_cosine(units),
        mean_share=float(mean @ mean / power.sum()),
        top_share=float(power[0] / power.sum()),
        centred_top_share=float(variance[0] / variance.sum()),
        participation_ratio=ratio,
        effective_rank=float(np.exp(stats.entropy(centred_spectrum))),
        partition_ratio=float(z.min() / z.max()),
        spectrum=spectrum.tolist(),
        centred_spectrum=centred_spectrum.tolist(),
        # The authors' formula gives the same, after some algebra.
        iso_score=(ratio - 1) / (channels - 1) if channels > 1 else None,
        uniformity=_uniformity(units),
        cosine_counts=_cosine_counts(units),
    )


def participation_ratio(variances: np.ndarray) -> float:
    """Return (sum of variances)^2 / sum of squared variances."""
    return float(variances.sum() ** 2 / np.sum(variances**2))


def directions_in_use(variances: np.ndarray, rows: int, width: int) -> float:
    """Return the number of directions of equal variance with the same spread.

    It is the `participation_ratio`, at most the `width` D. For `rows` draws from an isotropic
    space, 1 / ratio is 1 / D + 1 / (rows - 1), so the second term is subtracted.
    """
    if not variances.any():
        return float(width)
    inverse = 1 / participation_ratio(variances) - 1 / (rows - 1)
    return float(min(1 / max(inverse, 1e-9), width))


def alignment(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Return the mean squared distance of positive pairs, scaled to norm 1.

    Args:
      first, second: embeddings [n, D] of the pairs' sentences. 0 if those of each pair are alike.
    """
    first, second = (np.asarray(side, np.float64) for side in (first, second))
    distances = normalized(first) - normalized(second)
    return float(np.mean(np.sum(distances**2, axis=1)))


def positive_pairs(scores: Sequence[float], highest: float | None = None) -> np.ndarray:
    """Return the pairs with the label 1, or above 4 of 5.

    Args:
      highest: the highest score that a pair can have; None for 1 if no score is higher, else 5.
    """
    largest = max(scores)
    highest = highest or (1.0 if largest <= 1 else _HIGHEST_SCORE)
    if largest > highest:
        raise ArgumentError(f"pairs: found a score of {largest:g}, expected at most {highest:g}")
    return np.flatnonzero(np.asarray(scores) > _POSITIVE * highest)


def _uniformity(units: np.ndarray) -> float:
    """Return the uniformity of embeddings of norm 1, at most 10,000."""
    if len(units) > _MOST_ROWS:
        units = np.random.default_rng(0).permutation(units)[:_MOST_ROWS]
    n = len(units)
    total = 0.0
    for start in range(0, n, _ROWS):
        block = units[start : start + _ROWS]
        total += np.exp(4 * (block @ units.T) - 4).sum()
    # Each embedding's distance from itself is 0.
    return float(np.log((total - n) / (n * (n - 1))))


def gaussian_bits_per_dim(embeddings: npt.ArrayLike) -> float:
    """Return bits per dimension of a fitted diagonal Gaussian, over varying channels."""
    x = _checked(embeddings)
    variance = x.var(axis=0)[~negligible_channels(x)]
    return float(np.mean(0.5 * np.log2(2 * np.pi * np.e * variance)))


@dataclasses.dataclass(frozen=True)
class Change:
    """Measures of held-out embeddings before and after the flow."""

    before: Isotropy
    after: Isotropy

    def __str__(self) -> str:
        cosines = f"{self.before.mean_cosine:.3f} before, {self.after.mean_cosine:.3f} after"
        return (
            f"{self.before.embeddings:,} held-out sentences: mean cosine of random pairs {cosines}"
        )


def _checked(embeddings: npt.ArrayLike) -> np.ndarray:
    x = np.asarray(embeddings, np.float64)
    if len(x) < 2 or not (np.isfinite(x).all() and x.any(axis=1).all() and np.any(x != x[0])):
        raise UserError(
            f"embeddings {list(x.shape)}: expected 2 or more, finite, not zero, not all the same"
        )
    return x


def _cosine_counts(units: np.ndarray) -> list[int]:
    """Count the pairs of different rows by their cosine's bin."""
    if len(units) > _MOST_COUNTED:
        units = np.random.default_rng(0).permutation(units)[:_MOST_COUNTED]
    unit = units.astype(np.float32)
    counts = np.zeros(len(COSINE_BINS) - 1, np.int64)
    for row in range(0, len(unit), 512):
        found = unit[row : row + 512] @ unit[row:].T
        later = np.arange(found.shape[1]) > np.arange(len(found))[:, None]
        bins = np.clip((found[later] + 1) * 100, 0, len(counts) - 1).astype(np.int64)
        counts += np.bincount(bins, minlength=len(counts))
    return counts.tolist()
