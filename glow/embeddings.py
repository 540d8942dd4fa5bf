"""Checks of embeddings: finite values, and channels that carry information."""

import numpy as np

# Such a deviation is mere rounding: beside the typical one, or as roundings of the float32 sums that made it.
_NEGLIGIBLE_FRACTION = 1e-4
_ROUNDING = 32 * float(np.finfo(np.float32).eps)


def check_finite(X: np.ndarray, source: str, error: type[Exception] = ValueError) -> None:
    """Raise `error` for a NaN or infinity in a matrix."""
    finite = np.isfinite(X)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        value = "NaN" if np.isnan(X[row, column]) else X[row, column]
        raise error(f"{source}: found {value} in row {row}, column {column} (from 0), expected finite numbers")


def negligible_deviation(typical: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the largest negligible deviation of channels with this mean.

    It is 1e-4 of the typical deviation (the channels' root mean square), or 32 float32 roundings of the mean if that is
    more. Some sentence encoders have constant channels, which rounding makes deviate by 1e-8 to 1e-7; a division by
    that would blow them up. The second limit holds for float64 arrays too, because they come from float32 arithmetic.
    """
    return np.maximum(_NEGLIGIBLE_FRACTION * typical, _ROUNDING * np.abs(mean))


def negligible_channels(X: np.ndarray) -> np.ndarray:
    """Return bool [D]: True for negligible channels of `X` [n, D]."""
    mean, deviation = np.mean(X, axis=0, dtype=np.float64), np.std(X, axis=0, dtype=np.float64)
    return deviation <= negligible_deviation(np.sqrt(np.mean(deviation**2)), mean)
