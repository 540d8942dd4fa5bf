"""Calibrations of embeddings [n, D], as scikit-learn's transformers.

A deviation is *negligible* if it can be rounding alone, see `glow.embeddings`.
"""

import copy

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from bert_flow_tf.evaluation.methods import check_method
from glow.embeddings import negligible_channels, negligible_deviation


class StandardNormalization(StandardScaler):
    """SN: `(x - mean) / deviation` by channel (Li et al. 2020, Table 5).

    A channel of negligible deviation is divided by 1, so that it stays near zero.
    """

    def fit(self, X: np.ndarray, y: None = None) -> "StandardNormalization":
        super().fit(X)
        self.scale_ = np.where(negligible_channels(X), 1.0, np.sqrt(self.var_))
        return self


class NullTopSingularVectors(TransformerMixin, BaseEstimator):
    """NATSV(k): remove the first k right singular vectors, `x - V Vᵀ x`.

    Embeddings are not centred. Mu and Viswanath 2018, cited by the paper, subtract the mean first; but the paper
    describes only the projection, and subtracts a mean only in the row SN + NATSV.
    """

    def __init__(self, k: int = 1):
        self.k = k

    def fit(self, X: np.ndarray, y: None = None) -> "NullTopSingularVectors":
        X = np.asarray(X, np.float64)
        if self.k >= X.shape[1]:
            raise ValueError(f"found {self.k} directions to remove, expected fewer than the {X.shape[1]} channels")
        _, vectors = np.linalg.eigh(X.T @ X)
        self.components_ = np.ascontiguousarray(vectors[:, : -self.k - 1 : -1].T)
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        X = np.asarray(X, np.float64)
        return X - X @ self.components_.T @ self.components_

    def truncated(self, k: int) -> "NullTopSingularVectors":
        """Return a fitted copy that removes only `k` directions."""
        copied = copy.copy(self)
        copied.k, copied.components_ = k, self.components_[:k]
        return copied


class Whitening(PCA):
    """`(x - mean) U Λ^(-1/2)`, with the covariance's eigenvectors U and eigenvalues Λ, in descending order.

    Directions of negligible deviation become 0. Source: Su et al. 2021, "Whitening Sentence Representations for Better
    Semantics and Faster Retrieval", algorithm 1.

    Args:
      n_components: number of leading columns to keep; None keeps all D.
    """

    def __init__(self, n_components: int | None = None):
        super().__init__(n_components, whiten=True, svd_solver="covariance_eigh")

    def fit(self, X: np.ndarray, y: None = None) -> "Whitening":
        X = np.asarray(X, np.float64)
        super().fit(X)
        limit = negligible_deviation(np.sqrt(X.var(axis=0).mean()), np.sqrt(np.mean(self.mean_**2)))
        self.explained_variance_[np.sqrt(self.explained_variance_) <= limit] = np.inf
        return self


def calibration(name: str) -> BaseEstimator:
    """Return an unfitted calibration.

    Args:
      name: `none`, `sn`, `natsv-K`, `sn+natsv-K`, `whitening`, or `whitening-D` (D dimensions kept).

    Raises:
      ArgumentError: the name is unknown, or lacks K, which only `compare_calibrations` chooses.
    """
    if name != "none":
        check_method(name)
    kind, _, number = name.partition("-")
    if kind == "whitening":
        return Whitening(int(number) if number else None)
    plain = StandardNormalization() if kind.startswith("sn") else FunctionTransformer()
    return make_pipeline(plain, NullTopSingularVectors(int(number))) if number else plain
