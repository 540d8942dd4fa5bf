"""Texts become pooled vectors by one stage, which knows itself."""

import copy
import pickle
import threading

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.text_encoder import TextEncoder, map_concurrently
from bert_flow_tf.vectors import batches as batching
from tests.bert_flow_tf.sample_pairs import make_pairs
from tests.refusals import user_error

TEXTS = ["w1 w2 w3", "w4", "", "w1 w2 w3", "w5 w6", "w7 w8 w9 w10 w11"]


@pytest.fixture(scope="module")
def text_encoder(tiny_source):
    return TextEncoder.build(tiny_source, "avg-last-2", max_seq_length=6)


def alone(encoder, texts):
    """Return the vectors of texts that share no batch."""
    rows = [encoder.tokenizer(tf.constant([text]), encoder.max_seq_length) for text in texts]
    return np.concatenate([encoder.network(row) for row in rows])


def test_vectors_keep_the_order_of_the_texts(text_encoder):
    expected = alone(text_encoder, TEXTS)
    many = TEXTS * 300
    for options in ({}, {"batch_size": 2}, {"show_progress_bar": False}):
        np.testing.assert_allclose(text_encoder.encode(TEXTS, **options), expected, atol=1e-5)
    np.testing.assert_allclose(text_encoder.encode(many), np.tile(expected, (300, 1)), atol=1e-5)
    ((block, vectors),) = text_encoder.encode_blocks(iter(TEXTS))
    assert block == TEXTS
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    np.testing.assert_allclose(text_encoder.embed(tf.constant(TEXTS)), expected, atol=1e-5)
    assert text_encoder.encode([]).shape == (0, text_encoder.embedding_size)


def test_dropout_gives_each_occurrence_its_own_mask(small_source):
    encoder = TextEncoder.build(small_source, "avg", max_seq_length=6)
    texts = ["the cat sat", "a dog", "the cat sat"]
    rows = encoder.tokenizer.rows(texts, encoder.max_seq_length).rows

    def dropped(seed):
        return encoder.embed_rows(rows, dropout_seed=seed, occurrences=np.arange(len(rows)))

    found = dropped(1)
    assert np.abs(found[0] - found[2]).max() > 1e-3
    np.testing.assert_allclose(dropped(1), found, atol=1e-5)
    assert np.abs(dropped(2) - found).max() > 1e-3


@pytest.mark.parametrize(
    ("texts", "part"),
    [("A boat.", "str"), (["a", None], "[1]"), (["a", "\ud800"], "[1]"), (7, "int")],
)
def test_every_way_in_checks_its_texts(text_encoder, texts, part):
    for method in (
        lambda given: list(text_encoder.encode_blocks(given)),
        text_encoder.tokenize,
        text_encoder.only_unknown,
    ):
        with user_error("sentences", part):
            method(texts)


@pytest.mark.parametrize("length", [2, 2.5, 64.0, "64", True, None, 10**9])
def test_a_wrong_length_is_refused_by_both_doors(text_encoder, length):
    with user_error(f"max_seq_length: found {length!r}"):
        text_encoder.with_length(length)
    with user_error(f"max_seq_length: found {length!r}"):
        TextEncoder(text_encoder.source, text_encoder.network, max_seq_length=length)


def test_a_length_of_numpy_is_a_number(text_encoder):
    other = text_encoder.with_length(np.int64(5))
    assert type(other.max_seq_length) is int and other.recipe["max_seq_length"] == 5


def test_a_copy_of_the_state_has_the_same_vectors_and_recipe(text_encoder):
    trained = copy.copy(text_encoder)
    trained.make_trainable()
    first = next(iter(trained.network.variables_by_name.values()))
    first.assign(first + 0.1)
    for one in (text_encoder, trained):
        for copied in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one)):
            np.testing.assert_array_equal(copied.encode(TEXTS), one.encode(TEXTS))
            assert copied.recipe == one.recipe
            assert copied.network is not one.network
    assert trained.recipe != text_encoder.recipe


def test_training_the_encoder_of_a_copy_changes_only_the_copy(text_encoder):
    before = text_encoder.encode(TEXTS)
    trained = copy.copy(text_encoder)
    trained.make_trainable()
    for variable in trained.network.trainable_variables:
        variable.assign(variable * 1.5)
    assert np.abs(trained.encode(TEXTS) - before).max() > 1e-3
    np.testing.assert_array_equal(text_encoder.encode(TEXTS), before)


def test_bfloat16_is_not_trained(text_encoder):
    rounded = text_encoder.with_dtype("bfloat16")
    with user_error("dtype: found bfloat16", "float32"):
        rounded.make_trainable()
    difference = np.abs(rounded.encode(TEXTS) - text_encoder.encode(TEXTS)).max()
    assert 0 < difference < 0.1


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.with_length(5),
        lambda one: one.with_dtype("bfloat16"),
        lambda one: TextEncoder.build(one.source, "avg", max_seq_length=6),
    ],
)
def test_whatever_changes_vectors_changes_the_recipe(text_encoder, change):
    changed = change(text_encoder)
    assert np.abs(changed.encode(TEXTS) - text_encoder.encode(TEXTS)).max() > 0
    assert changed.recipe != text_encoder.recipe


def test_two_threads_compute_unless_one_must(monkeypatch):
    def place(item):
        return item, threading.current_thread()

    found = list(map_concurrently(place, range(9)))
    assert [item for item, _ in found] == list(range(9))
    assert len({thread for _, thread in found}) > 1
    with tf.distribute.MirroredStrategy(["/CPU:0"]).scope():
        alone = {thread for _, thread in map_concurrently(place, range(4))}
    assert alone == {threading.current_thread()}
    # XLA compiles in one thread at a time.
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_auto_jit=2")
    alone = {thread for _, thread in map_concurrently(place, range(5))}
    assert alone == {threading.current_thread()}


def test_threads_keep_the_device_of_the_caller(text_encoder, monkeypatch):
    devices = []
    real = tf.device
    monkeypatch.setattr(tf, "device", lambda name: devices.append(name) or real(name))
    rows = [np.full(i % 4, 7, np.int32) for i in range(50)]
    text_encoder.embed_rows(rows, batch_size=2)
    # None leaves the choice to TensorFlow; a name would keep a GPU out of it.
    assert devices == [None] * 25
    with real("/CPU:0"):
        text_encoder.embed_rows(rows, batch_size=2)
    assert {name[-5:] for name in devices[25:]} == {"CPU:0"}


def test_vectors_do_not_depend_on_the_batch(tokenizer, encoder, tiny_source, monkeypatch):
    rows = make_pairs(tokenizer, n=8).pieces
    texts = [tokenizer.pack(tf.RaggedTensor.from_row_lengths(row, [len(row)]), 10) for row in rows]
    alone = np.concatenate([encoder(one) for one in texts])
    for tokens_per_batch, pads in ((2048, False), (20, False), (20, True)):
        monkeypatch.setattr(batching, "TOKENS_PER_BATCH", tokens_per_batch)
        found = TextEncoder(tiny_source, encoder, max_seq_length=10, pad_to_max=pads)
        np.testing.assert_allclose(found.embed_rows(rows), alone, atol=1e-5)
