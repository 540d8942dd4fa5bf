"""Calibrations of embeddings that are affine maps, as scikit-learn's transformers.

A deviation is *negligible* if it can be rounding alone, see `glow.constant_channels`.
"""

import dataclasses
from typing import Any, NamedTuple, TypeVar

import numpy as np

from bert_flow_tf.common.errors import warn_user
from bert_flow_tf.vectors.similarities import normalized
from glow.constant_channels import negligible_channels, negligible_deviation

Self = TypeVar("Self", bound="AffineMethod")
# Rows so many times as far from the centre show what happens beyond the learned range.
_FAR = 10.0


class AffineMethod:
    """A map `(x - mean) @ matrix` that is learned from embeddings.

    Attributes:
      mean_, matrix_: float64 [D] and [D, d].
      choice_: what `fit` chose and why; "" where there is nothing to choose.
    """

    mean_: np.ndarray
    matrix_: np.ndarray
    choice_ = ""

    def fit(self: Self, X: np.ndarray, y: None = None) -> Self:
        """Learn from embeddings [n, D]; `y` is ignored.

        Raises:
          ValueError: the embeddings are too few, or do not vary.
        """
        self.mean_, self.matrix_ = self.learn(np.asarray(X, np.float64))
        if not np.isfinite(self.matrix_).all():
            raise ValueError("found embeddings that do not vary, expected different ones")
        return self

    def learn(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and matrix for embeddings, float64 [n, D]."""
        raise NotImplementedError

    def decided(self: Self) -> Self:
        """Return an unfitted method that keeps what this one has decided."""
        return dataclasses.replace(self)  # type: ignore[type-var]  # every method is a dataclass

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Return calibrated embeddings [n, d]."""
        return (X - self.mean_) @ self.matrix_


@dataclasses.dataclass
class StandardNormalization(AffineMethod):
    """Standard normalization of each channel, `sn` (Li et al. 2020, Table 5).

    A channel of negligible deviation is divided by 1, so that it stays near zero.
    """

    def learn(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scale = np.where(negligible_channels(x), 1.0, x.std(axis=0))
        return x.mean(axis=0), np.diag(1.0 / scale)


@dataclasses.dataclass
class NullTopDirections(AffineMethod):
    """Removal of the first K right singular vectors, `x - V Vᵀ x`, `natsv-K`.

    Embeddings are not centred. Mu and Viswanath 2018, cited by the paper, subtract the mean first;
    but the paper describes only the projection, and subtracts a mean only in the row SN + NATSV,
    here `sn+natsv-K`.
    """

    count: int

    def learn(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        width = x.shape[1]
        if self.count >= width:
            raise ValueError(
                f"found {self.count} directions to remove, expected fewer than the {width} channels"
            )
        top = np.linalg.eigh(x.T @ x)[1][:, -self.count :]
        return np.zeros(width), np.eye(width) - top @ top.T


@dataclasses.dataclass
class Whitening(AffineMethod):
    """Whitening, `(x - mean) U Λ^(-1/2)`, of all or of the first directions.

    U are the covariance's eigenvectors and Λ its eigenvalues, in descending order. Directions of
    negligible deviation become 0 (Su et al. 2021, "Whitening Sentence Representations for Better
    Semantics and Faster Retrieval", algorithm 1).

    Args:
      directions: the number of leading columns that are kept; None for all.
    """

    directions: int | None = None

    def learn(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        width = x.shape[1]
        kept = kept_directions(self.directions, width, "whitening")
        name = "whitening" if self.directions is None else f"whitening-{kept}"
        rows = len(distinct_rows(x))
        if rows <= width:
            soft = name.replace("whitening", "soft-whitening-0.1")
            expected = f"expected more than the {width} channels, or {soft}"
            raise ValueError(f"found {rows:,} different sentences for {name}, {expected}")
        if rows < 2 * kept:
            meaning = (
                f"fewer than twice the {kept} directions of {name} fit these better than others"
            )
            warn_user(f"fit: found {rows:,} different sentences; {meaning}")
        found = spectrum(x)
        return found.mean, whitening_matrix(found)[:, :kept]


@dataclasses.dataclass
class SoftWhitening(AffineMethod):
    """Whitening with `softness` times the mean eigenvalue added to all of them.

    No direction becomes 0, and the rows may be fewer than the channels.

    Args:
      directions: as `Whitening`'s.
    """

    softness: float
    directions: int | None = None

    def learn(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        name = f"soft-whitening-{self.softness:g}"
        kept = kept_directions(self.directions, x.shape[1], name)
        found = spectrum(x)
        return found.mean, whitening_matrix(found, self.softness)[:, :kept]


@dataclasses.dataclass
class WhiteningAboutOrigin(AffineMethod):
    """Soft whitening of the second moments, `x V (Λ + softness · mean Λ)^(-1/2)`.

    V and Λ are eigenvectors and eigenvalues of the mean of x xᵀ. The mean of the embeddings is not
    subtracted: it is a direction among others, which shrinks as they do. So a great softness
    leaves cosines as they are, while that of `SoftWhitening` still takes the mean away.

    Args:
      directions: as `Whitening`'s.
    """

    softness: float
    directions: int | None = None

    def learn(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        width = x.shape[1]
        kept = kept_directions(self.directions, width, "whitening")
        found, vectors = np.linalg.eigh(x.T @ x / len(x))
        values = np.maximum(found, 0.0)
        matrix = vectors / np.sqrt(values + self.softness * values.mean())
        return np.zeros(width), matrix[:, ::-1][:, :kept]


@dataclasses.dataclass
class CosineDirections(AffineMethod):
    """Projection to the directions that keep cosines best, see `cosine_directions`.

    Args:
      directions: their number; None for no change at all.
    """

    directions: int | None = None

    def learn(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        width = x.shape[1]
        if self.directions is None:
            return np.zeros(width), np.eye(width)
        return np.zeros(width), cosine_directions(x)[:, : self.directions]


class Spectrum(NamedTuple):
    """Mean [D], and a covariance's eigenvalues [D], descending, and vectors."""

    mean: np.ndarray
    values: np.ndarray
    vectors: np.ndarray

    @property
    def negligible(self) -> np.ndarray:
        """The deviation up to which a direction can be rounding alone."""
        typical = np.sqrt(self.values.mean())
        return negligible_deviation(typical, np.sqrt(np.mean(self.mean**2)))


def spectrum(x: np.ndarray) -> Spectrum:
    """Return the spectrum of embeddings [n, D]."""
    # NumPy returns no matrix for a single channel.
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(x, rowvar=False)))
    return Spectrum(x.mean(axis=0), np.maximum(values[::-1], 0.0), vectors[:, ::-1])


def whitening_matrix(found: Spectrum, softness: float = 0.0) -> np.ndarray:
    """Return the matrix [D, D] that whitens, or whitens softly."""
    kept = bool(softness) | (np.sqrt(found.values) > found.negligible)
    safe = np.where(kept, found.values, 1.0)
    return found.vectors * (kept / np.sqrt(safe + softness * found.values.mean()))


def kept_directions(directions: int | None, width: int, name: str) -> int:
    """Return the number of directions to keep; raise `ValueError` if above `width`."""
    kept = directions or width
    if kept > width:
        raise ValueError(f"found {name}-{kept}, expected at most the {width} channels")
    return kept


def cosine_directions(x: np.ndarray) -> np.ndarray:
    """Return orthonormal directions [D, D], those that explain cosines first.

    They are the right singular vectors of the rows [n, D], scaled to norm 1. The mean stays,
    because cosines of centred rows are others.
    """
    u = normalized(x)
    return np.linalg.eigh(u.T @ u)[1][:, ::-1]


def distinct_rows(x: np.ndarray) -> np.ndarray:
    """Return the different rows of `x` [n, D], in their order."""
    return x[list({row.tobytes(): i for i, row in reversed(list(enumerate(x)))}.values())[::-1]]


def affine_form(transformer: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return a fitted transformer's mean [D] and matrix [D, d], or None.

    It is None for one that is not affine. A transformer of another library is affine if its images
    of the mean of the embeddings `x` [n, D], and of one deviation of each channel from it,
    determine those of `x`, and of rows far beyond `x`.
    """
    if isinstance(transformer, AffineMethod):
        return transformer.mean_, transformer.matrix_
    x = np.asarray(x, np.float64)
    centre = x.mean(axis=0)
    # Steps of one size would hide the image of other channels beside one that hardly varies: a
    # scaler multiplies it by 1e9.
    deviations = x.std(axis=0)
    steps = np.where(deviations > 0, deviations, 1.0)
    offset = np.asarray(transformer.transform(centre[np.newaxis]), np.float64)
    images = np.asarray(transformer.transform(centre + np.diag(steps)), np.float64) - offset
    matrix = images / steps[:, np.newaxis]
    # The mean is a row whose image is zero. Each channel's equation is divided by its size.
    sizes = np.maximum(np.linalg.norm(images, axis=0), 1e-300)
    away = np.linalg.lstsq((images / sizes).T, -offset[0] / sizes, rcond=None)[0]
    mean = centre + away * steps
    # Clipping to the range of `x` shows in no row of `x`.
    away_rows = _FAR * (_some_rows(x) - centre)
    for rows in (x, centre + away_rows, centre - away_rows):
        expected = np.asarray(transformer.transform(rows), np.float64)
        largest = np.abs(expected).max(initial=1e-30)
        if np.abs((rows - mean) @ matrix - expected).max() > 1e-4 * largest:
            return None
    return mean, matrix


def _some_rows(x: np.ndarray) -> np.ndarray:
    """Return about 1,000 rows, and those of each channel's extremes."""
    spread = np.arange(0, len(x), max(1, len(x) // 1000))
    return x[np.unique([*spread, *x.argmin(axis=0), *x.argmax(axis=0)])]
