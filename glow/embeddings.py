"""Check embeddings for finite values, and find channels without information."""

import numpy as np

# A deviation is negligible below this fraction of the typical one, or of the mean.
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
    """Return the largest negligible standard deviation for a channel's mean.

    It is the larger of 1e-4 times the typical deviation (the channels' root mean square) and 32 float32 roundings of
    the mean. Some encoders have constant channels, whose deviation of 1e-8 to 1e-7 is rounding; a division by it would
    amplify noise. The second limit also applies to float64 arrays, because they come from float32 arithmetic.
    """
    return np.maximum(_NEGLIGIBLE_FRACTION * typical, _ROUNDING * np.abs(mean))


def negligible_channels(X: np.ndarray) -> np.ndarray:
    """Return bool [D], True for channels of `X` [n, D] without information."""
    mean, deviation = np.mean(X, axis=0, dtype=np.float64), np.std(X, axis=0, dtype=np.float64)
    return deviation <= negligible_deviation(np.sqrt(np.mean(deviation**2)), mean)
