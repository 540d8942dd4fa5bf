"""Embeddings in fewer bytes, as sentence-transformers stores them: whole numbers of 8 bits, or a bit for a channel."""

import numpy as np

from bert_flow_tf.errors import ArgumentError

PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")


def check_precision(precision: str) -> None:
    """Raises `ArgumentError` unless it is one of `PRECISIONS`."""
    if precision not in PRECISIONS:
        raise ArgumentError(f"precision: found {precision!r}, expected one of {', '.join(PRECISIONS)}")


def quantized(embeddings: np.ndarray, precision: str) -> np.ndarray:
    """Embeddings float32 [n, D] at one of `PRECISIONS`.

    `uint8` cuts each channel's range, from its least to its largest value in these n embeddings, into 255 steps; `int8`
    is that less 128. `ubinary` is uint8 [n, ceil(D / 8)]: 1 for each value above 0, the first channel in the highest
    bit; `binary`, int8, is that less 128. Only embeddings that were quantized together compare.

    Raises:
      ArgumentError: there is no such precision.
    """
    check_precision(precision)
    if precision == "float32":
        return embeddings
    levels: np.ndarray
    if precision.endswith("binary"):
        levels, lowest = np.packbits(embeddings > 0, axis=-1), precision == "binary"
    elif not len(embeddings):
        levels, lowest = np.zeros(embeddings.shape), precision == "int8"
    else:
        least, largest = embeddings.min(axis=0), embeddings.max(axis=0)
        steps = (largest - least) / 255
        levels = np.clip(np.floor((embeddings - least) / np.where(steps == 0, 1, steps)), 0, 255)
        lowest = precision == "int8"
    return (levels.astype(np.int16) - 128).astype(np.int8) if lowest else levels.astype(np.uint8)
