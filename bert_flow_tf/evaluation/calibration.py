"""Calibrations of embeddings [n, D] that are affine maps.

They are scikit-learn's transformers. A deviation is *negligible* if it can be rounding alone, see `glow.embeddings`.
"""

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

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


class Whitening(TransformerMixin, BaseEstimator):
    """`(x - mean) U Λ^(-1/2)`, with the covariance's eigenvectors U and eigenvalues Λ, in descending order.

    Directions of negligible deviation become 0. Source: Su et al. 2021, "Whitening Sentence Representations for Better
    Semantics and Faster Retrieval", algorithm 1.

    Args:
      n_components: number of leading columns to keep; None keeps all D.
      softness: multiple of the mean eigenvalue to add to all of them; then no direction becomes 0, and the rows may be
        fewer than the channels.
    """

    def __init__(self, n_components: int | None = None, softness: float = 0.0):
        self.n_components, self.softness = n_components, softness

    def fit(self, X: np.ndarray, y: None = None) -> "Whitening":
        X = np.asarray(X, np.float64)
        self.mean_ = X.mean(axis=0)
        values, vectors = np.linalg.eigh(np.cov(X, rowvar=False))
        values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
        limit = negligible_deviation(np.sqrt(values.mean()), np.sqrt(np.mean(self.mean_**2)))
        kept = bool(self.softness) | (np.sqrt(values) > limit)
        scales = kept / np.sqrt(np.where(kept, values, 1.0) + self.softness * values.mean())
        self.matrix_ = (vectors * scales)[:, : self.n_components]
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        return (np.asarray(X, np.float64) - self.mean_) @ self.matrix_


def calibration(name: str) -> BaseEstimator:
    """Return an unfitted calibration.

    Args:
      name: `sn`, `natsv-K`, `sn+natsv-K`, `whitening`, `whitening-D` (D dimensions kept), or
        `soft-whitening-E`, see `Whitening`.
    """
    kind, _, number = name.rpartition("-") if name[-1].isdigit() else (name, "", "")
    if kind == "soft-whitening":
        return Whitening(softness=float(number))
    if kind == "whitening":
        return Whitening(int(number) if number else None)
    first = StandardNormalization() if kind.startswith("sn") else FunctionTransformer()
    return make_pipeline(first, NullTopSingularVectors(int(number))) if number else first
