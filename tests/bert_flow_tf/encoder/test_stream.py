"""Every sentence has its own embedding in any batch."""

import threading

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.python.eager import context

from bert_flow_tf.encoder import stream
from tests.bert_flow_tf.sample_pairs import make_pairs


def test_map_concurrently_keeps_order_device_and_errors(monkeypatch):
    names = []

    def device_of(item):
        names.append(threading.current_thread().name)
        return item, tf.zeros([]).device.rpartition("device:")[2]

    with tf.device("/CPU:1"):
        assert list(stream.map_concurrently(device_of, range(9))) == [(i, "CPU:1") for i in range(9)]
    assert len(set(names)) > 1
    # "" leaves the choice to TensorFlow; a name would keep a GPU out of it.
    assert list(stream.map_concurrently(lambda _: context.context().device_name, range(4))) == [""] * 4
    names.clear()
    with tf.distribute.MirroredStrategy(["/CPU:0"]).scope():
        assert [item for item, _ in stream.map_concurrently(device_of, range(4))] == [0, 1, 2, 3]
    assert len(set(names)) == 1
    with pytest.raises(ZeroDivisionError):
        list(stream.map_concurrently(lambda item: 1 // (item - 3), range(9)))
    assert list(stream.map_concurrently(device_of, [])) == []
    # XLA compiles in one thread at a time.
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_auto_jit=2")
    assert {*stream.map_concurrently(lambda _: threading.current_thread(), range(5))} == {threading.current_thread()}


def test_a_sentence_that_recurs_is_computed_once():
    pieces = tf.ragged.constant([[5, 6], [7], [5, 6], [], [5], [7]], tf.int32)
    sentences, rows = stream.distinct(pieces)
    assert sorted(sentences.to_list()) == [[], [5], [5, 6], [7]]
    assert tf.gather(sentences, rows).to_list() == pieces.to_list()
    # The batches that they are computed in are then the same ones whatever the order of the data.
    again, _ = stream.distinct(pieces[::-1])
    assert again.to_list() == sentences.to_list()


def test_embeddings_do_not_depend_on_the_batch(tokenizer, encoder, monkeypatch):
    pairs = make_pairs(tokenizer, n=8)
    alone = np.concatenate(
        [encoder(tokenizer.pack(pairs.pieces[i : i + 1], 10)).numpy() for i in range(int(pairs.pieces.nrows()))]
    )
    together = stream.embed(encoder, tokenizer, pairs.pieces, 10)
    monkeypatch.setattr(stream, "_TOKENS_PER_BATCH", 20)
    lengths = stream.distinct(pairs.pieces)[0].row_lengths().numpy() + 2
    assert len(list(stream.length_batches(lengths))) > 4
    for embeddings in (
        together,
        stream.embed(encoder, tokenizer, pairs.pieces, 10),
        stream.embed(encoder, tokenizer, pairs.pieces, 10, pad_to_max=True),
    ):
        np.testing.assert_allclose(embeddings, alone, atol=1e-5)


@settings(derandomize=True, max_examples=50, deadline=None)
@given(lengths=st.lists(st.integers(2, 5000), max_size=300), batch_size=st.none() | st.integers(1, 50))
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
            # As many as fit, one that does not fit alone, and few of a length that others are much shorter than.
            longest = lengths[batch[0]]
            assert len(batch) == 1 or tokens <= 2048
            next_is_short = not last and lengths[batches[i + 1][0]] < 0.8 * longest
            assert last or tokens + longest > (512 if next_is_short else 2048)
            if tokens > 512:
                assert lengths[batch[-1]] >= 0.8 * longest
