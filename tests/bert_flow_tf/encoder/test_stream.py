"""Every sentence has its own embedding, whatever batch it is in and however often it occurs."""

import concurrent.futures
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from bert_flow_tf.encoder import batches, stream
from tests.bert_flow_tf.sample_pairs import make_pairs


def test_map_concurrently_keeps_order_device_and_errors():
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


def test_with_xla_batches_are_computed_one_at_a_time(monkeypatch):
    running, most = [], []

    def compute(item):
        running.append(item)
        time.sleep(0.01)
        most.append(len(running))
        running.remove(item)
        return item

    def compute_some(start):
        return [*stream.map_concurrently(compute, range(start, start + 5))]

    def check():
        most.clear()
        # Those of a user, who encodes in threads.
        with concurrent.futures.ThreadPoolExecutor(3) as threads:
            parts = [*threads.map(compute_some, (0, 5, 10))]
        assert parts == [[*range(start, start + 5)] for start in (0, 5, 10)]
        assert most == [1] * 15

    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_auto_jit=2")
    check()
    monkeypatch.delenv("TF_XLA_FLAGS")
    tf.config.optimizer.set_jit(True)
    try:
        check()
    finally:
        tf.config.optimizer.set_jit(False)


def test_a_sentence_that_recurs_is_computed_once():
    pieces = tf.ragged.constant([[5, 6], [7], [5, 6], [], [5], [7]], tf.int32)
    sentences, rows = stream.distinct(pieces)
    assert sorted(sentences.to_list()) == [[], [5], [5, 6], [7]]
    assert tf.gather(sentences, rows).to_list() == pieces.to_list()
    # The batches that they are computed in are then the same ones whatever the order of the data.
    again, _ = stream.distinct(pieces[::-1])
    assert again.to_list() == sentences.to_list()


def test_embeddings_are_each_sentences_own_whatever_its_batch(tokenizer, encoder, monkeypatch):
    pairs = make_pairs(tokenizer, n=8)
    alone = np.concatenate(
        [encoder(tokenizer.pack(pairs.pieces[i : i + 1], 10)).numpy() for i in range(int(pairs.pieces.nrows()))]
    )
    together = stream.embed(encoder, tokenizer, pairs.pieces, 10)
    monkeypatch.setattr(batches, "_TOKENS_PER_BATCH", 20)
    lengths = stream.distinct(pairs.pieces)[0].row_lengths().numpy() + 2
    assert len(list(batches.length_batches(lengths))) > 4
    for embeddings in (
        together,
        stream.embed(encoder, tokenizer, pairs.pieces, 10),
        stream.embed(encoder, tokenizer, pairs.pieces, 10, pad_to_max=True),
    ):
        np.testing.assert_allclose(embeddings, alone, atol=1e-5)
