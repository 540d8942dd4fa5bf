"""Embeddings as small integers, as sentence-transformers makes them."""

import numpy as np
import numpy.typing as npt

from bert_flow_tf.common.errors import ArgumentError, warn_user

ENCODE_PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")
# As in sentence-transformers, fewer rows say little about the ranges of others.
_FEW_ROWS = 100


def quantized(
    embeddings: np.ndarray, precision: str, ranges: npt.ArrayLike | None = None
) -> np.ndarray:
    """Return embeddings [n, D] in one of `ENCODE_PRECISIONS`, as sentence-transformers.

    `uint8` divides each channel's range into 255 steps; numbers outside it become its ends.
    `ubinary` packs bits, 1 for numbers above 0, into uint8 [n, ceil(D / 8)], highest bit first.
    `int8` and `binary` are `uint8` and `ubinary` minus 128.

    Args:
      ranges: the lowest and the highest number of each channel, [2, D], for `int8` and `uint8`.
        None takes those of these rows, so compare these rows only with each other.

    Raises:
      ArgumentError: the rows are equal, as one row is, so that they have no range; or `ranges` has
        another shape.
    """
    if precision == "float32":
        return embeddings
    if precision.endswith("binary"):
        levels = np.packbits(embeddings > 0, axis=-1)
    else:
        low, high = _ranges(embeddings, precision, ranges)
        steps = (high - low) / 255
        levels = np.clip(
            np.floor((embeddings - low) / np.where(steps == 0, 1, steps)), 0, 255
        ).astype(np.uint8)
    return levels if precision.startswith("u") else (levels.astype(np.int16) - 128).astype(np.int8)


def _ranges(
    embeddings: np.ndarray, precision: str, ranges: npt.ArrayLike | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return each channel's lowest and highest number."""
    n, width = embeddings.shape
    if ranges is not None:
        given = np.asarray(ranges, embeddings.dtype)
        if given.shape != (2, width):
            raise ArgumentError(
                f"ranges: found shape {list(given.shape)}, expected [2, {width}], the lowest and "
                "the highest number of each channel"
            )
        return given[0], given[1]
    low = embeddings.min(axis=0, initial=np.inf)
    high = embeddings.max(axis=0, initial=-np.inf)
    if n and (low == high).all():
        found = "one embedding" if n == 1 else f"{n} equal embeddings"
        raise ArgumentError(
            f"precision: found {precision} for {found}, which has no range; expected several that "
            "differ, float32, or ranges in vectors.quantization.quantized"
        )
    if 0 < n < _FEW_ROWS:
        warn_user(
            f"precision: the ranges of {precision} are those of {n} embeddings; {_FEW_ROWS} or "
            "more give ranges that hold for others"
        )
    return low, high
