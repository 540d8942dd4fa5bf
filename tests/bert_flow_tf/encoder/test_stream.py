"""Every sentence has its own embedding in any batch."""

import threading

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.python.eager import context

from bert_flow_tf.encoder import stream
from bert_flow_tf.vectors import batches as batching
from tests.bert_flow_tf.sample_pairs import make_pairs


def test_two_threads_keep_order_and_device_unless_one_must(monkeypatch):
    def place(item):
        return item, tf.zeros([]).device.rpartition("device:")[2], threading.current_thread()

    with tf.device("/CPU:1"):
        found = list(stream.map_concurrently(place, range(9)))
    assert [where[:2] for where in found] == [(i, "CPU:1") for i in range(9)]
    assert len({thread for *_, thread in found}) > 1
    # "" leaves the choice to TensorFlow; a name would keep a GPU out of it.
    assert (
        list(stream.map_concurrently(lambda _: context.context().device_name, range(4))) == [""] * 4
    )
    with tf.distribute.MirroredStrategy(["/CPU:0"]).scope():
        assert {thread for *_, thread in stream.map_concurrently(place, range(4))} == {
            threading.current_thread()
        }
    # XLA compiles in one thread at a time.
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_auto_jit=2")
    assert {thread for *_, thread in stream.map_concurrently(place, range(5))} == {
        threading.current_thread()
    }


def test_embeddings_do_not_depend_on_the_batch(tokenizer, encoder, monkeypatch):
    pairs = make_pairs(tokenizer, n=8)
    rows = range(int(pairs.pieces.nrows()))
    alone = np.concatenate([encoder(tokenizer.pack(pairs.pieces[i : i + 1], 10)) for i in rows])
    for tokens_per_batch, pads in ((2048, False), (20, False), (20, True)):
        monkeypatch.setattr(batching, "_TOKENS_PER_BATCH", tokens_per_batch)
        embeddings = stream.embed(encoder, tokenizer, pairs.pieces, 10, pad_to_max=pads)
        np.testing.assert_allclose(embeddings, alone, atol=1e-5)
    assert stream.tokenize(tokenizer, [], 10).nrows() == 0


@settings(derandomize=True, max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 5000), max_size=100), batch_size=st.none() | st.integers(1, 50)
)
def test_batches_hold_each_index_once_and_like_lengths(lengths, batch_size):
    batches = list(stream.length_batches(np.array(lengths, np.int64), batch_size))
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
