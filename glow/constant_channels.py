"""Find the constant channels of embeddings."""

import numpy as np

# A standard deviation is negligible up to these fractions of the typical deviation and of the
# channel's mean.
_NEGLIGIBLE_FRACTION = 1e-4
_ROUNDING = 32 * float(np.finfo(np.float32).eps)


def negligible_deviation(typical: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the standard deviation up to which a channel counts as constant.

    It is the larger of 1e-4 times the typical deviation (the channels' root mean square) and 32
    float32 roundings of the channel's mean. Some encoders have constant channels, whose deviation
    of 1e-8 to 1e-7 is rounding; dividing by it would amplify noise. The second limit also applies
    to float64 arrays, which come from float32 arithmetic.
    """
    return np.maximum(_NEGLIGIBLE_FRACTION * typical, _ROUNDING * np.abs(mean))


def negligible_channels(X: np.ndarray) -> np.ndarray:
    """Return bool [D], True for the constant channels of `X` [n, D]."""
    mean, deviation = np.mean(X, axis=0, dtype=np.float64), np.std(X, axis=0, dtype=np.float64)
    return deviation <= negligible_deviation(np.sqrt(np.mean(deviation**2)), mean)
