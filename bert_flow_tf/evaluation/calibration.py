"""Calibrations of embeddings [n, D], and their comparison as in Table 5.

They are scikit-learn's transformers. A deviation is *negligible* if it can be rounding alone, see `glow.embeddings`.
"""

import copy
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from absl import logging
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.evaluation.methods import TUNED, CalibrationScores, is_method
from bert_flow_tf.evaluation.protocols import cosines, score_pairs
from glow.embeddings import check_finite, negligible_channels, negligible_deviation

_LARGEST_K = 20


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
    if name != "none" and not is_method(name):
        raise ArgumentError(f"method: found {name!r}, expected none, whitening[-D], sn, natsv-K or sn+natsv-K")
    kind, _, number = name.partition("-")
    if kind == "whitening":
        return Whitening(int(number) if number else None)
    plain = StandardNormalization() if kind.startswith("sn") else FunctionTransformer()
    return make_pipeline(plain, NullTopSingularVectors(int(number))) if number else plain


class Split(NamedTuple):
    """Embeddings [2n, D], two neighbouring rows per pair, and gold scores [n]."""

    name: str
    embeddings: np.ndarray
    gold: np.ndarray
    metric: str = "spearman"

    def score(self, fitted: BaseEstimator, method: str) -> dict[str, float]:
        """Return the scores of calibrated embeddings by metric."""
        a, b = (fitted.transform(rows) for rows in (self.embeddings[::2], self.embeddings[1::2]))
        label = f"{method}, {self.name}"
        return score_pairs(cosines(a, b, label), self.gold, self.metric, label)


def compare_calibrations(
    methods: Sequence[str],
    fit_rows: np.ndarray,
    dev: Split,
    test: Split,
    seeds: Sequence[int],
    learn_flow: Callable[[int], BaseEstimator],
) -> list[CalibrationScores]:
    """Return each calibration's scores on test.

    A tuned method (`natsv`, `sn+natsv`) gets the k from 1 to 20 that is best on dev; the flow's scores are means over
    the seeds. Repeated sentences count each time, as in the original's training.

    Args:
      fit_rows: embeddings [n, D] to fit on; those of all splits for the paper's "target".
      learn_flow: function from a seed to a fitted `glow.FlowCalibrator`.

    Raises:
      UserError: a method is unknown or cannot be fitted, an embedding is not finite, or a score is undefined.
    """
    check_finite(fit_rows, "embeddings", UserError)
    found = []
    for method in methods:
        logging.info("calibration: %s", method)
        started = time.monotonic()
        try:
            if method in TUNED:
                row = _tuned(method, fit_rows, dev, test)
            elif method == "flow":
                by_seed = {seed: test.score(learn_flow(seed), f"flow of seed {seed}") for seed in seeds}
                metrics = by_seed[seeds[0]]
                means = {metric: statistics.fmean(one[metric] for one in by_seed.values()) for metric in metrics}
                row = CalibrationScores(method=method, by_metric=means, by_seed=by_seed)
            else:
                row = CalibrationScores(method=method, by_metric=test.score(calibration(method).fit(fit_rows), method))
        except ValueError as error:
            raise UserError(f"{method}: {error}") from error
        found.append(msgspec.structs.replace(row, seconds=time.monotonic() - started))
    return found


def _tuned(method: str, fit_rows: np.ndarray, dev: Split, test: Split) -> CalibrationScores:
    first = calibration("sn" if method == "sn+natsv" else "none").fit(fit_rows)
    # Fit the largest k only, because smaller ones use its leading directions.
    largest = NullTopSingularVectors(min(_LARGEST_K, fit_rows.shape[1] - 1)).fit(first.transform(fit_rows))
    by_k = {k: make_pipeline(first, largest.truncated(k)) for k in range(1, largest.k + 1)}
    dev_by_k = {k: dev.score(fitted, f"{method}-{k}")[dev.metric] for k, fitted in by_k.items()}
    k = max(dev_by_k, key=lambda k: dev_by_k[k])
    return CalibrationScores(method=method, by_metric=test.score(by_k[k], f"{method}-{k}"), k=k, dev_by_k=dev_by_k)
