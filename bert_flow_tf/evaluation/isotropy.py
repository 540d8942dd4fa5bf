"""How evenly embeddings use the directions of their space.

Sources: Li et al. 2020, section 3, on the anisotropy of BERT's space; Mu and Viswanath, "All-but-the-top", ICLR 2018,
https://arxiv.org/abs/1702.01417, for the ratio of partition functions; Roy and Vetterli, "The effective rank", EUSIPCO
2007; Ethayarajh, EMNLP 2019, for the mean cosine.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from bert_flow_tf.errors import UserError


@dataclasses.dataclass(frozen=True)
class Isotropy:
    """Measures of n embeddings in D channels; "isotropic" means that no direction stands out.

    Attributes:
      embeddings, channels: n, D.
      constant_channels: channels that do not vary but for rounding, see `calibration.negligible_channels`.
      mean_cosine: mean over all pairs of different embeddings; near 0 when isotropic.
      mean_share: share of the mean squared norm that the mean vector holds; near 0 when isotropic.
      top_share: share of the mean squared norm along the top singular vector; 1 / D when isotropic.
      centred_top_share: the same after the mean is subtracted: share of the variance.
      participation_ratio: (sum of variances)^2 / sum of squared variances, over principal directions; D when isotropic.
      effective_rank: exp of the entropy of the centred singular values, taken as shares; D when isotropic.
      partition_ratio: min Z(c) / max Z(c), in (0, 1], where Z(c) is the sum over embeddings x of exp(c . x) and c are
        the unit singular vectors; 1 when isotropic. It is Mu and Viswanath's measure, with two choices that make it a
        number of the embeddings alone: they are scaled to a mean squared norm of 1, and each singular vector counts
        with both signs, since its sign is arbitrary.
      spectrum, centred_spectrum: singular values over sqrt(n), descending: root mean square along each singular
        direction; of length min(n, D).
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
    spectrum: list[float]
    centred_spectrum: list[float]


def isotropy(embeddings: npt.ArrayLike) -> Isotropy:
    """`Isotropy` of the embeddings [n, D]; of different sentences, since repeated ones raise the mean cosine.

    Raises:
      UserError: fewer than two embeddings, one that is zero or not finite, or embeddings that are all the same.
    """
    x = _checked(embeddings)
    mean = x.mean(axis=0)
    singular, directions = _singular(x)
    spectrum = singular / np.sqrt(len(x))
    centred_spectrum = _singular(x - mean)[0] / np.sqrt(len(x))
    power, variance = spectrum**2, centred_spectrum**2
    shares = centred_spectrum / centred_spectrum.sum()
    return Isotropy(
        embeddings=x.shape[0],
        channels=x.shape[1],
        constant_channels=int(_negligible(x).sum()),
        mean_cosine=_mean_pairwise_cosine(x),
        mean_share=float(mean @ mean / power.sum()),
        top_share=float(power[0] / power.sum()),
        centred_top_share=float(variance[0] / variance.sum()),
        participation_ratio=float(variance.sum() ** 2 / np.sum(variance**2)),
        effective_rank=float(np.exp(-np.sum(shares * np.log(np.where(shares > 0, shares, 1.0))))),
        partition_ratio=_partition_ratio(x @ directions / np.sqrt(power.sum())),
        spectrum=spectrum.tolist(),
        centred_spectrum=centred_spectrum.tolist(),
    )


def gaussian_bits_per_dim(embeddings: npt.ArrayLike) -> float:
    """Bits per dimension of the embeddings [n, D] under a Gaussian with diagonal covariance fitted to them.

    That is the mean over varying channels of log2(2 pi e variance) / 2; constant channels have no density and are left
    out.

    Raises:
      UserError: as `isotropy`.
    """
    x = _checked(embeddings)
    variance = x.var(axis=0)[~_negligible(x)]
    return float(np.mean(0.5 * np.log2(2 * np.pi * np.e * variance)))


def isotropic_reference(n: int, channels: int, seed: int = 0) -> Isotropy:
    """`Isotropy` of n draws from a standard normal in `channels` channels: what isotropic embeddings look like.

    The spectrum of a finite sample is not flat: the participation ratio of n draws, say, is near n D / (n + D), not D.
    """
    return isotropy(np.random.default_rng(seed).normal(size=(n, channels)))


def _negligible(x: np.ndarray) -> np.ndarray:
    # scikit-learn, which this imports, takes a second to load: not for those who only read results.
    from bert_flow_tf.evaluation.calibration import negligible_channels

    return negligible_channels(x)


def _singular(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Singular values, descending, and right singular vectors, as columns, of `x`: [min(n, D)] and [D, min(n, D)]."""
    # Of R, which is as small as D allows: the left singular vectors of tall embeddings cost most and are not needed.
    _, singular, rows = np.linalg.svd(np.linalg.qr(x, mode="r"), full_matrices=False)
    return singular, rows.T


def _mean_pairwise_cosine(x: np.ndarray) -> float:
    """Mean cosine over all pairs of different rows of `x` [n, D]: exact, in O(n D).

    The squared norm of the sum of the n unit vectors is n plus the sum over all ordered pairs.
    """
    n = len(x)
    total = (x / np.linalg.norm(x, axis=1, keepdims=True)).sum(axis=0)
    return float((total @ total - n) / (n * (n - 1)))


def _partition_ratio(projections: np.ndarray) -> float:
    """min Z(c) / max Z(c) over unit singular vectors c, from the scaled embeddings' coordinates [n, directions]."""
    z = np.concatenate([np.exp(projections).sum(axis=0), np.exp(-projections).sum(axis=0)])
    return float(z.min() / z.max())


def _checked(embeddings: npt.ArrayLike) -> np.ndarray:
    x = np.asarray(embeddings, np.float64)
    if x.ndim != 2 or len(x) < 2:
        raise UserError(f"embeddings of shape {x.shape}, expected [n, D] with n of 2 or more")
    norms = np.linalg.norm(x, axis=1)
    bad = np.flatnonzero(~(np.isfinite(norms) & (norms > 0)))
    if bad.size:
        raise UserError(f"embedding {bad[0] + 1} of {len(x)} is zero or not finite, expected a direction")
    if not np.any(x != x[0]):
        raise UserError(f"all {len(x)} embeddings are the same, expected different sentences")
    return x
