"""Calibrations of an embedding matrix [n, D], all with scikit-learn's `fit` and `transform`.

A deviation is *negligible* if it is rounding and carries no information: see `glow.embeddings`, whose rule is also that
of the flow's data-dependent initialisation.
"""

import copy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.pipeline import make_pipeline
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

import glow
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.evaluation.calibration_names import TUNED, check_name
from glow import embeddings


class EmbeddingError(UserError, ValueError):
    """Embeddings or settings that a calibration cannot use: a `ValueError` to scikit-learn, one line to a command."""


def check_finite(X: np.ndarray, source: str) -> None:
    """Raises `EmbeddingError`, beginning with `source`, for a value of the matrix that is NaN or infinite."""
    embeddings.check_finite(X, source, EmbeddingError)


class _Calibration(TransformerMixin, BaseEstimator):
    """What the calibrations share: `X` is checked, and float32 stays float32."""

    def fit(self, X: np.ndarray, y: None = None) -> Any:
        """The calibration itself, after learning from `X` [n, D].

        Raises:
          EmbeddingError: a value is not finite, or shape or settings do not fit.
        """
        self._learn(self._checked(X, reset=True))
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        """The calibrated embeddings of `X` [n, D], in its dtype.

        Raises:
          EmbeddingError: a value is not finite.
        """
        check_is_fitted(self, "n_features_in_")
        X = self._checked(X, reset=False)
        return self._calibrated(X).astype(X.dtype)

    def _checked(self, X: np.ndarray, *, reset: bool) -> np.ndarray:
        """`X` as a finite array, float32 or float64; its width is learned where `reset`, and compared otherwise."""
        X = validate_data(self, X, dtype=(np.float64, np.float32), ensure_all_finite=False, reset=reset)
        check_finite(X, "embeddings")
        return X

    def _learn(self, X: np.ndarray) -> None:
        pass

    def _calibrated(self, X: np.ndarray) -> np.ndarray:
        return X

    def _expect_rows(self, X: np.ndarray, method: str, fewest: int) -> None:
        if len(X) < fewest:
            samples = "1 sample" if len(X) == 1 else f"{len(X)} samples"
            raise EmbeddingError(f"{method}: found {samples}, expected at least {fewest}")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class Identity(OneToOneFeatureMixin, _Calibration):
    """The embeddings as they are, after the checks that every calibration makes."""


class StandardNormalization(OneToOneFeatureMixin, _Calibration):
    """SN: `(x - mean) / deviation`, channel by channel. Li et al. 2020, section 4.3 and Table 5.

    A channel whose deviation is negligible is divided by 1, so that it stays near zero. Needs 2 rows or more.

    Attributes:
      mean_: float64 [D].
      scale_: float64 [D], the deviations over n (not n - 1), 1 where negligible.
    """

    def _learn(self, X: np.ndarray) -> None:
        self._expect_rows(X, "SN", 2)
        self.mean_ = X.mean(axis=0, dtype=np.float64)
        deviation = X.std(axis=0, dtype=np.float64)
        self.scale_ = np.where(embeddings.negligible_channels(X), 1.0, deviation)

    def _calibrated(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean_) / self.scale_


class NullTopSingularVectors(OneToOneFeatureMixin, _Calibration):
    """NATSV(k): `x - V Vᵀ x` removes the first k right singular vectors V [D, k]. Li et al. 2020, section 4.3, Table 5.

    The paper cites Mu and Viswanath 2018, who subtract the mean first, but it describes only the projection, and
    subtracts a mean in a row of its own, SN + NATSV. So the embeddings are not centred here, and the first singular
    vector is close to the direction of the mean. After SN both are the same.

    Args:
      k: directions to remove, 1 or more and less than D; needs k + 2 rows or more.

    Attributes:
      components_: float64 [k, D], orthonormal, the largest singular value first.
    """

    def __init__(self, k: int = 1):
        self.k = k

    def _learn(self, X: np.ndarray) -> None:
        width = X.shape[1]
        if not 1 <= self.k < width:
            raise EmbeddingError(f"k: found {self.k} with n_features = {width}, expected 1 to {width - 1}")
        # k + 1 rows about their mean span no more than k directions: nothing would be left of them.
        self._expect_rows(X, f"NATSV(k={self.k})", self.k + 2)
        X = X.astype(np.float64)
        _, vectors = np.linalg.eigh(X.T @ X)
        self.components_ = np.ascontiguousarray(vectors[:, : -self.k - 1 : -1].T)

    def _calibrated(self, X: np.ndarray) -> np.ndarray:
        X = X.astype(np.float64)
        return X - X @ self.components_.T @ self.components_

    def truncated(self, k: int) -> "NullTopSingularVectors":
        """A fitted copy that removes only the first `k` of these directions, without a second decomposition."""
        fewer = copy.copy(self)
        fewer.k, fewer.components_ = k, self.components_[:k]
        return fewer


class Whitening(ClassNamePrefixFeaturesOutMixin, _Calibration):
    """`(x - mean) U Λ^(-1/2)`, with the covariance's eigenvectors U and eigenvalues Λ, the largest first.

    A direction whose deviation is negligible, compared with the typical channel's and with the root mean square of the
    means, becomes 0. Su et al. 2021, "Whitening Sentence Representations for Better Semantics and Faster Retrieval",
    algorithm 1.

    Args:
      dimension: columns to keep, the leading ones; None keeps all D. Needs more rows than dimensions.

    Attributes:
      mean_: float64 [D].
      kernel_: float64 [D, dimension], `U Λ^(-1/2)`, of the covariance over n (not n - 1).
    """

    def __init__(self, dimension: int | None = None):
        self.dimension = dimension

    def _learn(self, X: np.ndarray) -> None:
        width = X.shape[1]
        dimension = width if self.dimension is None else self.dimension
        if not 1 <= dimension <= width:
            raise EmbeddingError(f"dimension: found {dimension}, expected 1 to the embeddings' {width}")
        self._expect_rows(X, f"whitening to {dimension} dimensions", dimension + 1)
        X = X.astype(np.float64)
        self.mean_ = X.mean(axis=0)
        X -= self.mean_
        typical = np.sqrt(np.mean(X**2))
        eigenvalues, vectors = np.linalg.eigh(X.T @ X / len(X))
        # Rounding may leave an eigenvalue below zero.
        deviation = np.sqrt(np.maximum(eigenvalues[::-1], 0.0))
        kept = deviation > embeddings.negligible_deviation(typical, np.sqrt(np.mean(self.mean_**2)))
        if not kept.any():
            raise EmbeddingError(f"whitening: the {len(X)} embeddings do not differ, expected different ones")
        scale = np.divide(1.0, deviation, out=np.zeros(width), where=kept)
        self.kernel_ = (vectors[:, ::-1] * scale)[:, :dimension]

    @property
    def _n_features_out(self) -> int:
        return self.kernel_.shape[1]

    def _calibrated(self, X: np.ndarray) -> np.ndarray:
        return (X - self.mean_) @ self.kernel_


_PLAIN = {"none": Identity, "sn": StandardNormalization, "whitening": Whitening}


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
        # Loaded here: it brings TensorFlow, and the others do without.
        return glow.FlowCalibrator(**flow_options)
    if name in _PLAIN:
        return _PLAIN[name]()
    kind, _, number = name.rpartition("-")
    if kind == "whitening":
        return Whitening(int(number))
    nulling = NullTopSingularVectors(int(number))
    return nulling if kind == "natsv" else make_pipeline(StandardNormalization(), nulling)
