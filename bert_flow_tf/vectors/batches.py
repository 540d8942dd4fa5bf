"""Rows of word-piece ids: batches, padding and warnings of lost words."""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_flow_tf.common.errors import ArgumentError
from glow.number_types import is_whole_number

# Matrix products of this many rows are efficient, and the rows stay in the processor's cache.
TOKENS_PER_BATCH = 2048


def check_max_seq_length(value: int, limit: int | None, limit_is: str = "") -> int:
    """Return a number of word pieces; raise `ArgumentError` for another value.

    Args:
      limit: the largest number; None for no limit.
      limit_is: words that say what the limit is.
    """
    largest = limit or sys.maxsize
    if not is_whole_number(value) or not 3 <= value <= largest:
        raise ArgumentError(
            f"max_seq_length: found {value!r}, expected a whole number from 3 to {largest}"
            f"{limit_is}"
        )
    return int(value)


def length_batches(
    lengths: np.ndarray, batch_size: int | None = None, tokens: int | None = None
) -> Iterator[np.ndarray]:
    """Yield batches of indices into `lengths` [n], longest first.

    Without `batch_size`, a batch has up to 2,048 tokens, or `tokens`, padding included, but only up
    to a quarter of that if it has a sentence shorter than 0.8 of its longest.

    Raises:
      ArgumentError: `batch_size` is no number of rows.
    """
    if batch_size is not None and not (is_whole_number(batch_size) and batch_size >= 1):
        raise ArgumentError(
            f"batch_size: found {batch_size!r}, expected a whole number of 1 or more"
        )
    most = tokens or TOKENS_PER_BATCH
    order = np.argsort(-lengths, kind="stable")
    descending = lengths[order]
    start = 0
    while start < len(order):
        if (count := batch_size) is None:
            longest = int(descending[start])
            # If the lengths differed much, a full batch would be mostly padding.
            alike = int(np.searchsorted(-descending, -0.8 * longest, side="right")) - start
            count = max(1, min(most // longest, max(alike, most // 4 // longest)))
        yield order[start : start + count]
        start += count


def distinct(rows: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the distinct rows, sorted, and each row's index in them."""
    keys = np.array([row.tobytes() for row in rows], object)
    _, first_rows, index = np.unique(keys, return_index=True, return_inverse=True)
    return [rows[i] for i in first_rows], index


def padded(
    rows: Sequence[Sequence[int] | np.ndarray],
    *,
    cls: int,
    sep: int,
    pad: int = 0,
    length: int | None = None,
    dtype: Any = np.int64,
) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and mask [n, t] of rows, between `cls` and `sep`.

    Args:
      length: t; None for the longest row's, which has two ids more than its pieces.
    """
    counts = np.array([len(row) for row in rows])[:, np.newaxis]
    position = np.arange(length or counts.max() + 2)
    mask = position < counts + 2
    ids = np.full(mask.shape, pad, dtype)
    ids[:, 0] = cls
    ids[position == counts + 1] = sep
    ids[(position > 0) & (position <= counts)] = np.concatenate(rows)
    return ids, mask.astype(dtype)


def losses_in_words(texts: int, cut: int, unknown: int, max_seq_length: int) -> Iterator[str]:
    """Yield warnings of texts that lose words.

    Args:
      cut: texts longer than `max_seq_length` word pieces.
      unknown: texts of nothing but unknown pieces.
    """
    if cut:
        found = f"{cut:,} of {texts:,} texts are longer than {max_seq_length} word pieces"
        yield f"{found} (max_seq_length) and were cut"
    if unknown:
        yield (
            f"{unknown:,} of {texts:,} texts hold only unknown word pieces, such as emoji or "
            "another script; their embeddings do not tell them apart"
        )
