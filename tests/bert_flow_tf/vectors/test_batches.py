"""Batches hold texts of similar length; padding keeps their pieces."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_flow_tf.vectors.batches import distinct, length_batches, padded


@settings(derandomize=True, max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 5000), max_size=100), batch_size=st.none() | st.integers(1, 50)
)
def test_batches_hold_each_index_once_and_like_lengths(lengths, batch_size):
    batches = list(length_batches(np.array(lengths, np.int64), batch_size))
    order = [int(index) for batch in batches for index in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[i] for i in order] == sorted(lengths, reverse=True)
    for i, batch in enumerate(batches):
        tokens, last = len(batch) * lengths[batch[0]], i == len(batches) - 1
        if batch_size is not None:
            assert len(batch) == batch_size or (last and len(batch) < batch_size)
        else:
            # As many as fit, one that does not fit alone, and few of a length that others are much
            # shorter than.
            longest = lengths[batch[0]]
            assert len(batch) == 1 or tokens <= 2048
            next_is_short = not last and lengths[batches[i + 1][0]] < 0.8 * longest
            assert last or tokens + longest > (512 if next_is_short else 2048)
            if tokens > 512:
                assert lengths[batch[-1]] >= 0.8 * longest


@settings(derandomize=True, max_examples=30, deadline=None)
@given(rows=st.lists(st.lists(st.integers(5, 300), max_size=9), min_size=1, max_size=20))
def test_padded_rows_are_found_again(rows):
    arrays = [np.array(row, np.int32) for row in rows]
    for given_rows in (rows, arrays):
        for length in (None, 12):
            ids, mask = padded(given_rows, cls=2, sep=3, pad=1, length=length, dtype=np.int32)
            assert ids.shape == (len(rows), length or max(map(len, rows)) + 2)
            assert ids.dtype == mask.dtype == np.int32
            found = [row[: count.sum()].tolist() for row, count in zip(ids, mask, strict=True)]
            assert found == [[2, *row, 3] for row in rows]
            assert np.all(ids[mask == 0] == 1)
    unique, index = distinct(arrays)
    assert len({row.tobytes() for row in unique}) == len(unique)
    assert [unique[i].tolist() for i in index] == rows
    assert [row.tobytes() for row in unique] == sorted(row.tobytes() for row in unique)
