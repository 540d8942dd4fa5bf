"""Batches hold every index once, and like lengths together."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_flow_tf.encoder.batches import length_batches


@settings(derandomize=True, max_examples=50, deadline=None)
@given(lengths=st.lists(st.integers(2, 5000), max_size=300), batch_size=st.none() | st.integers(1, 50))
def test_batches_hold_each_index_once_and_like_lengths_together(lengths, batch_size):
    batches = list(length_batches(np.array(lengths, np.int64), batch_size))
    order = [int(index) for batch in batches for index in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[i] for i in order] == sorted(lengths, reverse=True)
    for i, batch in enumerate(batches):
        tokens, last = len(batch) * lengths[batch[0]], i == len(batches) - 1
        if batch_size is not None:
            assert len(batch) == batch_size or (last and len(batch) < batch_size)
        else:
            # As many as fit, one that does not fit alone, and few of a length that others are much shorter than.
            longest = lengths[batch[0]]
            assert len(batch) == 1 or tokens <= 2048
            next_is_short = not last and lengths[batches[i + 1][0]] < 0.8 * longest
            assert last or tokens + longest > (512 if next_is_short else 2048)
            if tokens > 512:
                assert lengths[batch[-1]] >= 0.8 * longest
