"""What embeddings must be, and which of their channels carry information."""

import numpy as np

# A channel whose deviation is this much smaller than the typical one carries no information, only rounding.
_NEGLIGIBLE_FRACTION = 1e-4
# Nor does one whose deviation is within the rounding of the float32 sums that made it.
_ROUNDING = 32 * float(np.finfo(np.float32).eps)


def check_finite(X: np.ndarray, source: str, error: type[Exception] = ValueError) -> None:
    """Raises `error` if the matrix `X` [n, D] holds a NaN or an infinity, in one line of `source` and the place."""
    finite = np.isfinite(X)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        value = "NaN" if np.isnan(X[row, column]) else f"{X[row, column]}"
        raise error(
            f"{source}: found {value} in row {row}, column {column} (from 0), {(~finite).sum()} such values in all, "
            "expected finite numbers"
        )


def negligible_deviation(typical: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """The largest deviation that counts as none: 1e-4 of the typical one, or 32 float32 roundings of the mean.

    Embeddings are the output of float32 arithmetic, so the second limit holds for arrays of float64 too. Some sentence
    encoders have constant channels: they deviate by 1e-8 to 1e-7, which is rounding, and dividing by that would make a
    scale of a million of it.

    Args:
      typical: root mean square of the channels' deviations, a number.
      mean: mean of each channel, [D] or a number.
    """
    return np.maximum(_NEGLIGIBLE_FRACTION * typical, _ROUNDING * np.abs(mean))


def negligible(deviation: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """bool [D]: whether each channel's deviation is negligible, from deviations [D] and means [D]."""
    return deviation <= negligible_deviation(np.sqrt(np.mean(deviation**2)), mean)


def negligible_channels(X: np.ndarray) -> np.ndarray:
    """bool [D]: the channels of `X` [n, D] whose deviation is negligible."""
    X = np.asarray(X, np.float64)
    return negligible(X.std(axis=0), X.mean(axis=0))
