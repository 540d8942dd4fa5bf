"""Checks of embeddings: finite values, and channels that carry information."""

import numpy as np

# A channel whose deviation is this much smaller than the typical one carries only rounding.
_NEGLIGIBLE_FRACTION = 1e-4
# So does one whose deviation is within the rounding of the float32 sums that made it.
_ROUNDING = 32 * float(np.finfo(np.float32).eps)


def check_finite(X: np.ndarray, source: str, error: type[Exception] = ValueError) -> None:
    """Raise `error` for a NaN or an infinity in the matrix `X` [n, D]; the line begins with `source`."""
    finite = np.isfinite(X)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        value = "NaN" if np.isnan(X[row, column]) else X[row, column]
        raise error(f"{source}: found {value} in row {row}, column {column} (from 0), expected finite numbers")


def negligible_deviation(typical: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the largest negligible deviation: 1e-4 of the typical one, or 32 float32 roundings of the mean.

    Embeddings come from float32 arithmetic, so the second limit holds for float64 arrays too. Some sentence encoders
    have constant channels: rounding makes them deviate by 1e-8 to 1e-7, and a division by that would blow it up. The
    typical deviation is the channels' root mean square.
    """
    return np.maximum(_NEGLIGIBLE_FRACTION * typical, _ROUNDING * np.abs(mean))


def negligible_channels(X: np.ndarray) -> np.ndarray:
    """Return bool [D]: the channels of `X` [n, D] whose deviation is negligible."""
    mean, deviation = np.mean(X, axis=0, dtype=np.float64), np.std(X, axis=0, dtype=np.float64)
    return deviation <= negligible_deviation(np.sqrt(np.mean(deviation**2)), mean)
