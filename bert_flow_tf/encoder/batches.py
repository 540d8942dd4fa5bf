"""Which sentences share a batch: those of like lengths, so that little of it is padding."""

from collections.abc import Iterator

import numpy as np

# Per pass of the encoder: enough rows for its products to run at full rate, few enough for them to stay in a cache.
_TOKENS_PER_BATCH = 2048
# Of a batch's longest sentence.
_LEAST_LENGTH = 0.8


def length_batches(
    lengths: np.ndarray, batch_size: int | None = None, tokens: int | None = None
) -> Iterator[np.ndarray]:
    """Yields int64 arrays of indices, like lengths together; the longest first.

    Args:
      lengths: int array [n], the length at each index, with the padding that it needs in any batch.
      batch_size: indices per batch; None takes what has up to `tokens` tokens, but at least one, and of those only the
        ones that are not much shorter than the first, if they have a quarter of these tokens.
      tokens: int; None for 2,048.
    """
    tokens = _TOKENS_PER_BATCH if tokens is None else tokens
    order = np.argsort(-lengths, kind="stable")
    descending = lengths[order]
    start = 0
    while start < len(order):
        count = batch_size
        if count is None:
            longest = int(descending[start])
            # Where lengths differ, as in a few sentences, most of a full batch would be padding.
            alike = int(np.searchsorted(-descending, -_LEAST_LENGTH * longest, side="right")) - start
            count = max(1, min(tokens // longest, max(alike, tokens // 4 // longest)))
        yield order[start : start + count]
        start += count
