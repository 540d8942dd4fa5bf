"""Calibrations of an embedding matrix [n, D], all with scikit-learn's `fit` and `transform`, and their names.

A deviation is *negligible*, that is, rounding and no information, if it is at most 1e-4 of the typical one (the root
mean square over channels), or at most 32 float32 roundings of the mean: the rule of the flow's own initialisation, see
`glow.embeddings`.
"""

import copy
import re
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.pipeline import make_pipeline
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from bert_flow_tf.errors import ArgumentError, UserError
from glow import embeddings


class EmbeddingError(UserError, ValueError):
    """Embeddings or settings that a calibration cannot use: a `ValueError` to scikit-learn, one line to a command."""


def checked_embeddings(estimator: BaseEstimator, X: np.ndarray, *, reset: bool) -> np.ndarray:
    """`X` as a finite array [n, D], float32 or float64 as it came; anything else becomes float64.

    The estimator learns its width from `X` where `reset`, as in `fit`, and is asked for it otherwise.

    Raises:
      EmbeddingError: a value is NaN or infinite; the line names its row and column.
      ValueError: as scikit-learn's `validate_data`, for no matrix, no rows, or another width.
    """
    X = validate_data(estimator, X, dtype=(np.float64, np.float32), ensure_all_finite=False, reset=reset)
    check_finite(X, "embeddings")
    return X


def check_finite(X: np.ndarray, source: str) -> None:
    """Raises `EmbeddingError`, beginning with `source`, for a value of the matrix that is NaN or infinite."""
    embeddings.check_finite(X, source, EmbeddingError)


def negligible_channels(X: np.ndarray) -> np.ndarray:
    """bool [D]: the channels of `X` [n, D] whose deviation is negligible (see the module)."""
    X = np.asarray(X, np.float64)
    return _negligible(X.std(axis=0), X.mean(axis=0))


def _negligible(deviation: np.ndarray, mean: np.ndarray) -> np.ndarray:
    typical = np.sqrt(np.mean(deviation**2))
    return deviation <= embeddings.negligible_deviation(typical, mean)


def _expect_rows(X: np.ndarray, method: str, fewest: int) -> None:
    if len(X) < fewest:
        samples = "1 sample" if len(X) == 1 else f"{len(X)} samples"
        raise EmbeddingError(f"{method}: found {samples}, expected at least {fewest}")


class _Calibration(TransformerMixin, BaseEstimator):
    """What the calibrations share: `transform` checks `X`, and float32 stays float32."""

    def transform(self, X: np.ndarray) -> np.ndarray:
        """The calibrated embeddings of `X` [n, D], in its dtype."""
        check_is_fitted(self, "n_features_in_")
        X = checked_embeddings(self, X, reset=False)
        return self._calibrated(X).astype(X.dtype)

    def _calibrated(self, X: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class Identity(OneToOneFeatureMixin, _Calibration):
    """The embeddings as they are, after the checks that every calibration makes."""

    def fit(self, X: np.ndarray, y: None = None) -> "Identity":
        """The calibration itself; only the width of `X` [n, D] is learned."""
        checked_embeddings(self, X, reset=True)
        return self

    def _calibrated(self, X: np.ndarray) -> np.ndarray:
        return X


class StandardNormalization(OneToOneFeatureMixin, _Calibration):
    """SN: `(x - mean) / deviation`, channel by channel.

    A channel whose deviation is negligible (see the module) is divided by 1: it leaves as it came, about zero. Li et
    al. 2020, section 4.3 and Table 5.

    Attributes:
      mean_: float64 [D].
      scale_: float64 [D], the deviations over n (not n - 1), 1 where negligible.
    """

    def fit(self, X: np.ndarray, y: None = None) -> "StandardNormalization":
        """The calibration itself, after learning mean and deviation of each channel of `X` [n, D].

        Raises:
          EmbeddingError: fewer than 2 rows, or a value is not finite.
        """
        X = checked_embeddings(self, X, reset=True)
        _expect_rows(X, "SN", 2)
        self.mean_ = X.mean(axis=0, dtype=np.float64)
        deviation = X.std(axis=0, dtype=np.float64)
        self.scale_ = np.where(_negligible(deviation, self.mean_), 1.0, deviation)
        return self

    def _calibrated(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean_) / self.scale_


class NullTopSingularVectors(OneToOneFeatureMixin, _Calibration):
    """NATSV(k): `x - V Vᵀ x`, the projections on the first k right singular vectors V [D, k] taken away.

    The paper cites Mu and Viswanath 2018, who subtract the mean first; its own words are of singular vectors that are
    projected away, and it has a row of its own, SN + NATSV, where a mean is subtracted. So here the singular vectors
    are those of the embeddings as they are, and the first one is close to the mean's direction; `center` subtracts the
    mean, as Mu and Viswanath do. After SN there is no difference. Li et al. 2020, section 4.3 and Table 5.

    Args:
      k: directions to take away, 1 or more and less than D.
      center: subtract the mean first.

    Attributes:
      mean_: float64 [D], zero without `center`.
      components_: float64 [k, D], orthonormal, the largest singular value first.
    """

    def __init__(self, k: int = 1, center: bool = False):
        self.k = k
        self.center = center

    def fit(self, X: np.ndarray, y: None = None) -> "NullTopSingularVectors":
        """The calibration itself, after learning the directions of `X` [n, D].

        Raises:
          EmbeddingError: `k` does not fit D or the number of rows, or a value is not finite.
        """
        X = checked_embeddings(self, X, reset=True)
        width = X.shape[1]
        if not 1 <= self.k < width:
            raise EmbeddingError(f"k: found {self.k} with n_features = {width}, expected 1 to {width - 1}")
        # k + 1 rows about their mean span no more than k directions: nothing would be left of them.
        _expect_rows(X, f"NATSV(k={self.k})", self.k + 2)
        X = X.astype(np.float64)
        self.mean_ = X.mean(axis=0) if self.center else np.zeros(width)
        X -= self.mean_
        _, vectors = np.linalg.eigh(X.T @ X)
        self.components_ = np.ascontiguousarray(vectors[:, : -self.k - 1 : -1].T)
        return self

    def _calibrated(self, X: np.ndarray) -> np.ndarray:
        centered = X - self.mean_
        return centered - centered @ self.components_.T @ self.components_

    def truncated(self, k: int) -> "NullTopSingularVectors":
        """A fitted copy that takes away only the first `k` of this one's directions; no second decomposition.

        Raises:
          EmbeddingError: `k` is not between 1 and this one's.
        """
        check_is_fitted(self)
        if not 1 <= k <= self.k:
            raise EmbeddingError(f"k: found {k}, expected 1 to {self.k}")
        fewer = copy.copy(self)
        fewer.k = k
        fewer.components_ = self.components_[:k]
        return fewer


class Whitening(ClassNamePrefixFeaturesOutMixin, _Calibration):
    """`(x - mean) U Λ^(-1/2)`, with the covariance's eigenvectors U and eigenvalues Λ, the largest first.

    A direction whose deviation is negligible becomes 0 instead of being divided by its deviation: at most 1e-4 of the
    typical channel's, or at most 32 float32 roundings of the means (their root mean square). Su et al. 2021,
    "Whitening Sentence Representations for Better Semantics and Faster Retrieval", algorithm 1.

    Args:
      dimension: columns to keep, the leading ones; None keeps all D.

    Attributes:
      mean_: float64 [D].
      kernel_: float64 [D, dimension], `U Λ^(-1/2)`.
    """

    def __init__(self, dimension: int | None = None):
        self.dimension = dimension

    def fit(self, X: np.ndarray, y: None = None) -> "Whitening":
        """The calibration itself, after learning mean and covariance (over n, not n - 1) of `X` [n, D].

        Raises:
          EmbeddingError: `dimension` is not between 1 and D, there are not more rows than dimensions, all rows are the
            same, or a value is not finite.
        """
        X = checked_embeddings(self, X, reset=True)
        width = X.shape[1]
        dimension = width if self.dimension is None else self.dimension
        if not 1 <= dimension <= width:
            raise EmbeddingError(f"dimension: found {dimension}, expected 1 to the embeddings' {width}")
        _expect_rows(X, f"whitening to {dimension} dimensions", dimension + 1)
        X = X.astype(np.float64)
        self.mean_ = X.mean(axis=0)
        X -= self.mean_
        typical = np.sqrt(np.mean(X**2))
        eigenvalues, vectors = np.linalg.eigh(X.T @ X / len(X))
        # Rounding may leave an eigenvalue below zero.
        deviation = np.sqrt(np.maximum(eigenvalues[::-1], 0.0))
        least = embeddings.negligible_deviation(typical, np.sqrt(np.mean(self.mean_**2)))
        kept = deviation > least
        if not kept.any():
            raise EmbeddingError(f"whitening: the {len(X)} embeddings do not differ, expected different ones")
        scale = np.divide(1.0, deviation, out=np.zeros(width), where=kept)
        self.kernel_ = (vectors[:, ::-1] * scale)[:, :dimension]
        return self

    @property
    def _n_features_out(self) -> int:
        return self.kernel_.shape[1]

    def _calibrated(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean_) @ self.kernel_


# k is chosen on dev (Table 5).
TUNED = ("natsv", "sn+natsv")
TUNED_K = range(1, 21)
NAMES = "none, sn, natsv, natsv-K, sn+natsv, sn+natsv-K, whitening, whitening-D, flow"
_NUMBERED = re.compile(r"(natsv|sn\+natsv|whitening)-([1-9][0-9]*)")


def check_name(name: str) -> None:
    """Raises `ArgumentError` unless `name` is a calibration's: one of `NAMES`, K and D numbers from 1."""
    if name not in ("none", "sn", *TUNED, "whitening", "flow") and not _NUMBERED.fullmatch(name):
        raise ArgumentError(f"methods: unknown calibration {name!r}, expected some of {NAMES}")


def calibration(name: str, **flow_options: Any) -> BaseEstimator:
    """The calibration of that name, not fitted.

    Args:
      name: `none`, `sn`, `natsv-K`, `sn+natsv-K`, `whitening`, `whitening-D` (D dimensions kept), or `flow`.
      **flow_options: arguments of `glow.calibrator.FlowCalibrator`, for `flow`.

    Raises:
      ArgumentError: no such calibration, or `natsv` or `sn+natsv` without a K, which only `compare` can choose.
    """
    check_name(name)
    if name in TUNED:
        raise ArgumentError(f"name: found {name!r} without its k, expected {name}-K")
    if name == "flow":
        # TensorFlow takes seconds to load, and the others do without.
        from glow.calibrator import FlowCalibrator

        return FlowCalibrator(**flow_options)
    match = _NUMBERED.fullmatch(name)
    if match is None:
        return {"none": Identity, "sn": StandardNormalization, "whitening": Whitening}[name]()
    kind, number = match.groups()
    if kind == "whitening":
        return Whitening(int(number))
    nulling = NullTopSingularVectors(int(number))
    return nulling if kind == "natsv" else make_pipeline(StandardNormalization(), nulling)
