"""Pairs become ids, batches and embeddings in the original's order, and no cache is ever stale."""

import dataclasses
import shutil
import threading

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_flow_tf import input_pipeline
from bert_flow_tf.encoder import SentenceEncoder
from bert_flow_tf.errors import UserError
from bert_flow_tf.tasks import Examples, get_task
from bert_flow_tf.tokenizer import Tokenizer

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(59))]
STSB = get_task("sts-b")


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(VOCAB, do_lower_case=True)


@pytest.fixture(scope="module")
def encoder(tiny_source):
    return SentenceEncoder(tiny_source, "avg", trainable=False)


def make_pairs(tokenizer, n=6, max_seq_length=10):
    a = [" ".join(f"w{j}" for j in range(i + 1)) for i in range(n)]
    b = [f"w{20 + i}" for i in range(n)]
    examples = Examples(a, b, np.arange(n, dtype=np.float32) % 6, has_labels=True)
    labels = input_pipeline.scaled_labels(examples, STSB)
    return input_pipeline.tokenize_pairs(tokenizer, examples, labels, max_seq_length)


def batch_labels(pairs, tokenizer, steps, **options):
    features = input_pipeline.token_features(pairs, tokenizer, 10, pad_to_max=False)
    options = {"batch_size": 4, "seed": 3} | options
    batches = input_pipeline.training_batches(features, np.arange(len(pairs)), **options)
    return [labels.numpy().tolist() for _, labels in batches.take(steps)]


def test_scores_are_scaled_to_the_cosines_range_and_classes_are_ids():
    examples = Examples(["a"] * 3, ["b"] * 3, np.float32([1, 3, 5]), has_labels=True)
    np.testing.assert_allclose(input_pipeline.scaled_labels(examples, get_task("sick-r")), np.float32([0.2, 0.6, 1.0]))
    classes = Examples(["a"] * 2, ["b"] * 2, np.int32([2, 0]), has_labels=True)
    assert input_pipeline.scaled_labels(classes, get_task("mnli")).tolist() == [2, 0]
    assert input_pipeline.scaled_labels(classes, get_task("mnli")).dtype == np.int32


def test_all_but_so_many_labels_are_masked_before_scaling():
    labels = np.linspace(0, 1, 20, dtype=np.float32)
    masked = input_pipeline.mask_labels(labels, 5, STSB, seed=1)
    assert np.sum(masked == -2.0) == 15  # (-10 - 0) / 5
    assert set(masked[masked > -1]) <= set(labels)
    np.testing.assert_array_equal(masked, input_pipeline.mask_labels(labels, 5, STSB, seed=1))
    assert np.any(masked != input_pipeline.mask_labels(labels, 5, STSB, seed=2))
    assert labels.min() == 0


def test_sentences_are_cut_two_below_the_limit_and_keep_their_pairs(tokenizer):
    pairs = make_pairs(tokenizer, n=6, max_seq_length=5)
    assert pairs.pieces.row_lengths().numpy().tolist() == [1, 1, 2, 1, 3, 1, 3, 1, 3, 1, 3, 1]
    assert pairs.pieces.to_list()[2:4] == [[5, 6], [26]]


def test_a_permutation_keeps_sentences_with_their_labels(tokenizer):
    pairs = make_pairs(tokenizer)
    shuffled = input_pipeline.permuted(pairs, seed=4)
    assert not np.array_equal(shuffled.labels, pairs.labels)
    rows = shuffled.pieces.to_list()
    for i, label in enumerate(shuffled.labels):
        length = round(float(label) * 5) + 1
        assert len(rows[2 * i]) == length and rows[2 * i + 1] == [24 + length]


def test_copies_of_a_pair_have_one_masked_token_in_each_sentence(tokenizer):
    examples = Examples(["w1 w2 w3", ""], ["w4", "w5 w6"], np.float32([1, 2]), has_labels=True)
    labels = input_pipeline.scaled_labels(examples, STSB)
    pairs = input_pipeline.tokenize_pairs(tokenizer, examples, labels, 10)
    copies = input_pipeline.duplicated(pairs, 3, tokenizer.mask_id, seed=1)
    rows = copies.pieces.to_list()
    np.testing.assert_array_equal(copies.labels, np.repeat(labels, 3))
    assert rows[:2] == [[6, 7, 8], [9]] and rows[6:8] == [[], [10, 11]]
    for a, b in zip(rows[2:6:2], rows[3:6:2], strict=True):
        assert b == [tokenizer.mask_id] and a.count(tokenizer.mask_id) == 1 and len(a) == 3
    assert rows[8] == rows[10] == []
    assert input_pipeline.duplicated(pairs, 1, tokenizer.mask_id, seed=1) is pairs


def test_the_fingerprint_tells_texts_labels_and_orders_apart(tokenizer):
    pairs = make_pairs(tokenizer)
    assert input_pipeline.fingerprint(pairs) == input_pipeline.fingerprint(make_pairs(tokenizer))
    others = [
        make_pairs(tokenizer, n=5),
        make_pairs(tokenizer, max_seq_length=6),
        input_pipeline.permuted(pairs, seed=4),
        input_pipeline.Pairs(pairs.pieces, pairs.labels + 1),
    ]
    assert len({input_pipeline.fingerprint(p) for p in [pairs, *others]}) == 5


@pytest.mark.differs("seeded generators")
def test_epochs_follow_each_other_without_a_break_in_an_order_of_the_seed(tokenizer):
    pairs = make_pairs(tokenizer)
    batches = batch_labels(pairs, tokenizer, 6)
    assert all(len(batch) == 4 for batch in batches)
    flat = [label for batch in batches for label in batch]
    for epoch in range(4):
        assert sorted(flat[6 * epoch : 6 * epoch + 6]) == list(range(6))
    assert flat[:6] != flat[6:12]
    assert batches == batch_labels(pairs, tokenizer, 6)
    assert batches != batch_labels(pairs, tokenizer, 6, seed=4)


def test_batches_go_on_where_an_interrupted_run_stopped(tokenizer):
    pairs = make_pairs(tokenizer)
    assert batch_labels(pairs, tokenizer, 8)[5:] == batch_labels(pairs, tokenizer, 3, skip_steps=5)


@pytest.mark.differs("Batches are padded")
@pytest.mark.parametrize(("pad_to_max", "length"), [(False, 5), (True, 10)])
def test_tokens_are_padded_to_the_longest_or_to_the_limit(tokenizer, pad_to_max, length):
    features = input_pipeline.token_features(make_pairs(tokenizer), tokenizer, 10, pad_to_max)
    tokens = features(tf.constant([2, 0], tf.int64))
    ids = np.zeros([2, 2, length], np.int32)
    ids[0, 0, :5], ids[0, 1, :3] = [2, 5, 6, 7, 3], [2, 27, 3]
    ids[1, 0, :3], ids[1, 1, :3] = [2, 5, 3], [2, 25, 3]
    np.testing.assert_array_equal(tokens["input_word_ids"], ids)
    np.testing.assert_array_equal(tokens["input_mask"], ids > 0)


@settings(derandomize=True, max_examples=50, deadline=None)
@given(lengths=st.lists(st.integers(2, 5000), max_size=300), batch_size=st.none() | st.integers(1, 50))
def test_batches_hold_each_index_once_and_like_lengths_together(lengths, batch_size):
    batches = list(input_pipeline.length_batches(np.array(lengths, np.int64), batch_size))
    order = [int(index) for batch in batches for index in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[i] for i in order] == sorted(lengths, reverse=True)
    for i, batch in enumerate(batches):
        tokens, last = len(batch) * lengths[batch[0]], i == len(batches) - 1
        if batch_size is not None:
            assert len(batch) == batch_size or (last and len(batch) < batch_size)
        else:
            # As many as fit, and one that does not fit alone.
            assert len(batch) == 1 or tokens <= 2048
            assert last or tokens + lengths[batch[0]] > 2048


def test_two_at_a_time_keeps_order_device_and_errors():
    names = []

    def device_of(item):
        names.append(threading.current_thread().name)
        return item, tf.zeros([]).device.rpartition("device:")[2]

    with tf.device("/CPU:1"):
        assert list(input_pipeline.two_at_a_time(device_of, range(9))) == [(i, "CPU:1") for i in range(9)]
    assert len(set(names)) > 1
    names.clear()
    with tf.distribute.MirroredStrategy(["/CPU:0"]).scope():
        assert [item for item, _ in input_pipeline.two_at_a_time(device_of, range(4))] == [0, 1, 2, 3]
    assert len(set(names)) == 1
    with pytest.raises(ZeroDivisionError):
        list(input_pipeline.two_at_a_time(lambda item: 1 // (item - 3), range(9)))
    assert list(input_pipeline.two_at_a_time(device_of, [])) == []


def test_a_sentence_that_recurs_is_computed_once():
    pieces = tf.ragged.constant([[5, 6], [7], [5, 6], [], [5], [7]], tf.int32)
    sentences, rows = input_pipeline.distinct(pieces)
    assert sorted(sentences.to_list()) == [[], [5], [5, 6], [7]]
    assert tf.gather(sentences, rows).to_list() == pieces.to_list()
    # The batches that they are computed in are then the same ones whatever the order of the data.
    again, _ = input_pipeline.distinct(pieces[::-1])
    assert again.to_list() == sentences.to_list()


def test_embeddings_are_each_sentences_own_whatever_its_batch(tokenizer, encoder, monkeypatch):
    pairs = make_pairs(tokenizer, n=8)
    alone = np.concatenate(
        [encoder(tokenizer.pack(pairs.pieces[i : i + 1], 10)).numpy() for i in range(int(pairs.pieces.nrows()))]
    )
    together = input_pipeline.embed(encoder, tokenizer, pairs.pieces, 10)
    monkeypatch.setattr(input_pipeline, "_TOKENS_PER_BATCH", 20)
    for embeddings in (
        together,
        input_pipeline.embed(encoder, tokenizer, pairs.pieces, 10),
        input_pipeline.embed(encoder, tokenizer, pairs.pieces, 10, pad_to_max=True),
    ):
        np.testing.assert_allclose(embeddings, alone, atol=1e-5)


def cached(encoder, tokenizer, pairs, folder, **options):
    options = {"max_seq_length": 10} | options
    return input_pipeline.cached_embeddings(encoder, tokenizer, pairs.pieces, cache_dir=folder, **options)


def test_cached_embeddings_are_read_not_computed(tokenizer, encoder, tmp_path, monkeypatch):
    pairs = make_pairs(tokenizer)
    first = cached(encoder, tokenizer, pairs, tmp_path / "new")
    monkeypatch.setattr(input_pipeline, "embed", None)
    np.testing.assert_array_equal(cached(encoder, tokenizer, pairs, tmp_path / "new"), first)
    assert len(list((tmp_path / "new").iterdir())) == 1


@pytest.mark.differs("No cache of records")
def test_no_other_encoder_pooling_padding_length_or_text_reads_them(tokenizer, encoder, tmp_path, monkeypatch):
    pairs = make_pairs(tokenizer)
    cached(encoder, tokenizer, pairs, tmp_path)
    padded = {"pad_to_max": True}
    for i, (other, options) in enumerate(
        [
            (pairs, padded),
            (pairs, padded | {"max_seq_length": 12}),
            (make_pairs(tokenizer, max_seq_length=6), {"max_seq_length": 6}),
            (make_pairs(tokenizer, n=17), {}),
            (make_pairs(Tokenizer(VOCAB[:5] + VOCAB[:4:-1], True)), {}),
        ]
    ):
        cached(encoder, tokenizer, other, tmp_path, **options)
        assert len(list(tmp_path.iterdir())) == i + 2
    files = len(list(tmp_path.iterdir()))
    with monkeypatch.context() as changed:
        changed.setattr(encoder, "source", dataclasses.replace(encoder.source, fingerprint="another"))
        cached(encoder, tokenizer, pairs, tmp_path)
    with monkeypatch.context() as changed:
        changed.setattr(encoder, "sentence_embedding_type", "cls")
        cached(encoder, tokenizer, pairs, tmp_path)
    assert len(list(tmp_path.iterdir())) == files + 2


def test_the_order_of_the_sentences_makes_no_difference(tokenizer, encoder, tmp_path, monkeypatch):
    pairs = make_pairs(tokenizer)
    first = cached(encoder, tokenizer, pairs, tmp_path)
    monkeypatch.setattr(input_pipeline, "embed", None)
    order = np.random.default_rng(0).permutation(len(first))
    shuffled = dataclasses.replace(pairs, pieces=tf.gather(pairs.pieces, order))
    np.testing.assert_array_equal(cached(encoder, tokenizer, shuffled, tmp_path), first[order])


def test_a_part_of_the_sentences_is_read_from_the_file_of_all_not_computed(tokenizer, encoder, tmp_path, monkeypatch):
    all_of_them, part, more = make_pairs(tokenizer, n=12), make_pairs(tokenizer, n=5), make_pairs(tokenizer, n=13)
    first = cached(encoder, tokenizer, all_of_them, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(input_pipeline, "embed", None)
        np.testing.assert_array_equal(cached(encoder, tokenizer, part, tmp_path), first[: 2 * len(part)])
        for pairs, folder, options in (
            (more, tmp_path, {}),
            (part, tmp_path / "other", {}),
            (part, tmp_path, {"pad_to_max": True}),
        ):
            with pytest.raises(TypeError):
                cached(encoder, tokenizer, pairs, folder, **options)
    shutil.rmtree(tmp_path / "other")
    assert len(list(tmp_path.iterdir())) == 1
    # A file that is gone is no answer.
    next(tmp_path.iterdir()).unlink()
    np.testing.assert_allclose(cached(encoder, tokenizer, part, tmp_path), first[: 2 * len(part)], atol=1e-6)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_cache_that_is_no_folder_is_one_line(tokenizer, encoder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"file: cannot be made \(File exists\), expected a place for a directory"):
        cached(encoder, tokenizer, make_pairs(tokenizer), tmp_path / "file")


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-7], lambda data: data[:40], lambda data: b"", lambda data: b"PK\3\4"]
)
def test_a_cache_file_that_is_not_whole_is_made_again(tokenizer, encoder, tmp_path, damage):
    pairs = make_pairs(tokenizer)
    whole = cached(encoder, tokenizer, pairs, tmp_path)
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    path.write_bytes(damage(data))
    np.testing.assert_array_equal(cached(encoder, tokenizer, pairs, tmp_path), whole)
    assert path.read_bytes() == data
