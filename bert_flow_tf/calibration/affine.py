"""Calibrations of embeddings that are affine maps.

A deviation is *negligible* if it can be rounding alone, see `glow.constant_channels`.
"""

import numpy as np

from glow.constant_channels import negligible_channels, negligible_deviation


def affine_calibration(method: str, embeddings: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Learn `(x - mean) @ matrix` on embeddings [n, D]; return mean and matrix.

    - `sn`: standard normalization of each channel (Li et al. 2020, Table 5). A channel of
      negligible deviation is divided by 1, so that it stays near zero.
    - `natsv-K`: remove the first K right singular vectors, `x - V Vᵀ x`. Embeddings are not
      centred. Mu and Viswanath 2018, cited by the paper, subtract the mean first; but the paper
      describes only the projection, and subtracts a mean only in the row SN + NATSV, here
      `sn+natsv-K`.
    - `whitening`, `whitening-D`: `(x - mean) U Λ^(-1/2)`, with the covariance's eigenvectors U and
      eigenvalues Λ, in descending order; its leading D columns. Directions of negligible deviation
      become 0 (Su et al. 2021, "Whitening Sentence Representations for Better Semantics and Faster
      Retrieval", algorithm 1).
    - `soft-whitening-E`: whitening with E times the mean eigenvalue added to all of them. Then no
      direction becomes 0, and the rows may be fewer than the channels.

    Raises:
      ValueError: `natsv-K` would remove every direction.
    """
    x = np.asarray(embeddings, np.float64)
    kind, _, number = method.rpartition("-") if method[-1].isdigit() else (method, "", "")
    if kind == "soft-whitening":
        return _whitening(x, float(number))
    if kind == "whitening":
        mean, matrix = _whitening(x)
        return mean, matrix[:, : int(number) if number else None]
    mean, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
    if kind.startswith("sn"):
        mean, scale = x.mean(axis=0), np.where(negligible_channels(x), 1.0, x.std(axis=0))
    matrix = np.diag(1.0 / scale)
    if number:
        if int(number) >= len(scale):
            raise ValueError(
                f"found {number} directions to remove, expected fewer than the {len(scale)} "
                "channels"
            )
        x = (x - mean) / scale
        top = np.linalg.eigh(x.T @ x)[1][:, -int(number) :]
        matrix -= matrix @ top @ top.T
    return mean, matrix


def _whitening(x: np.ndarray, softness: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    mean = x.mean(axis=0)
    values, vectors = np.linalg.eigh(np.cov(x, rowvar=False))
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    kept = bool(softness) | (
        np.sqrt(values) > negligible_deviation(np.sqrt(values.mean()), np.sqrt(np.mean(mean**2)))
    )
    return mean, vectors * (kept / np.sqrt(np.where(kept, values, 1.0) + softness * values.mean()))
