"""The check that embeddings are finite."""

import numpy as np


def check_finite(X, source, error=ValueError):
    """Raises `error` for a NaN or an infinity in the matrix `X` [n, D], in one line that names the first by its place.

    Args:
      X: array [n, D].
      source: what the line begins with.
      error: class to raise.
    """
    finite = np.isfinite(X)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        value = "NaN" if np.isnan(X[row, column]) else f"{X[row, column]}"
        raise error(
            f"{source}: found {value} in row {row}, column {column} (from 0), {(~finite).sum()} such values in all, "
            "expected finite numbers"
        )
