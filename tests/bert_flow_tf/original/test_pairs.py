"""Pairs become ids and batches in the original's order."""

import functools

import numpy as np
import pytest

from bert_flow_tf.original import pairs as input_pipeline
from bert_flow_tf.original.pairs import ordered
from bert_flow_tf.original.settings import DataSettings
from bert_flow_tf.tasks.tasks import Examples
from tests.bert_flow_tf import small_runs
from tests.bert_flow_tf.sample_pairs import make_pairs


def token_batches(pairs, tokenizer, skip_steps=0, rows=slice(None), seed=3, pad=False):
    pack = functools.partial(tokenizer.pack, max_seq_length=10, pad_to_max=pad)
    return input_pipeline.token_batches(
        pairs, ordered(len(pairs.labels), 4, seed), pack, skip_steps, rows
    )


def batch_labels(pairs, tokenizer, steps, **options):
    pairs = input_pipeline.TokenizedPairs(pairs.pieces, np.arange(len(pairs.labels)))
    return [
        labels.numpy().tolist()
        for _, labels in token_batches(pairs, tokenizer, **options).take(steps)
    ]


def test_copies_of_a_pair_have_a_masked_token_each(tokenizer):
    examples = Examples(["w1 w2 w3", ""], ["w4", "w5 w6"], np.float32([1, 2]), has_labels=True)
    pairs = input_pipeline.tokenize_pairs(tokenizer, examples, np.float32([0.2, 0.4]), 10)
    copies = input_pipeline.duplicate(pairs, 3, tokenizer.mask_id, seed=1)
    rows = [row.tolist() for row in copies.pieces]
    np.testing.assert_array_equal(copies.labels, np.repeat(pairs.labels, 3))
    assert rows[:2] == [[6, 7, 8], [9]] and rows[6:8] == [[], [10, 11]]
    for a, b in zip(rows[2:6:2], rows[3:6:2], strict=True):
        assert b == [tokenizer.mask_id] and a.count(tokenizer.mask_id) == 1 and len(a) == 3
    assert rows[8] == rows[10] == []


def test_a_run_has_labelled_pairs_and_copies_of_each(tokenizer, tmp_path):
    data = small_runs.write_stsb(tmp_path)
    settings = DataSettings(task_name="STS-B", data_dir=str(data), dupe_factor=2)
    pairs, num_examples = input_pipeline.read_training_data(settings, tokenizer, 128, 5, seed=1234)
    assert num_examples == 24 and len(pairs.labels) == 48
    # The label is (-10 - 0) / 5.
    assert np.sum(pairs.labels == -2.0) == 19 * 2 and np.sum(pairs.labels >= 0) == 5 * 2


def test_the_fingerprint_tells_texts_and_labels_apart(tokenizer):
    pairs = make_pairs(tokenizer)
    assert input_pipeline.fingerprint(pairs) == input_pipeline.fingerprint(make_pairs(tokenizer))
    others = [
        make_pairs(tokenizer, max_seq_length=6),
        input_pipeline.TokenizedPairs(pairs.pieces, pairs.labels[::-1]),
    ]
    assert len({input_pipeline.fingerprint(one) for one in [pairs, *others]}) == 3


@pytest.mark.differs("seeded generators")
def test_epochs_follow_each_other_in_an_order_of_the_seed(tokenizer):
    pairs = make_pairs(tokenizer)
    batches = batch_labels(pairs, tokenizer, 6)
    assert batches[4:] == batch_labels(pairs, tokenizer, 2, skip_steps=4)
    assert all(len(batch) == 4 for batch in batches)
    flat = [label for batch in batches for label in batch]
    for epoch in range(4):
        assert sorted(flat[6 * epoch : 6 * epoch + 6]) == list(range(6))
    assert flat[:6] != flat[6:12]
    assert batches == batch_labels(pairs, tokenizer, 6)
    assert batches != batch_labels(pairs, tokenizer, 6, seed=4)


def test_a_buffer_of_1000_pairs_shuffles():
    ((_, order),) = ordered(3000, 3000, seed=3).take(1).as_numpy_iterator()
    # What leaves the buffer is among it and as many as have left it before: the first n + 1,000.
    assert np.all(order[:2000] < np.arange(2000) + 1000)
    assert order[:200].max() > 1000


@pytest.mark.differs("Batches are padded")
@pytest.mark.parametrize(("pad_to_max", "length"), [(False, 6), (True, 10)])
def test_tokens_are_padded_to_the_longest_or_to_the_limit(tokenizer, pad_to_max, length):
    pairs = make_pairs(tokenizer, n=4)
    ((tokens, labels),) = token_batches(pairs, tokenizer, pad=pad_to_max).take(1)
    ids = np.zeros([4, 2, length], np.int32)
    for row, label in enumerate(np.round(labels.numpy() * 5).astype(int)):
        ids[row, 0, : label + 3], ids[row, 1, :3] = [2, *range(5, label + 6), 3], [2, 25 + label, 3]
    np.testing.assert_array_equal(tokens["input_word_ids"], ids)
    np.testing.assert_array_equal(tokens["input_mask"], ids > 0)


def test_embeddings_ahead_are_of_the_same_pairs_and_numbers(tokenizer, monkeypatch):
    monkeypatch.setattr(input_pipeline, "SENTENCES_AHEAD", 24)
    pairs = make_pairs(tokenizer)
    pairs = input_pipeline.TokenizedPairs(
        pairs.pieces, np.arange(len(pairs.labels), dtype=np.float32)
    )
    first_ids = np.array([row[0] for row in pairs.pieces])

    def embedded(skip_steps=0, rows=slice(None)):
        """Return embeddings (first id, number), labels, and each call's numbers."""
        calls = []

        def embed(sentences, occurrences):
            calls.append(occurrences.tolist())
            return np.stack([first_ids[sentences], occurrences], axis=1).astype(np.float32)

        order = ordered(len(pairs.labels), 4, seed=3)
        batches = list(input_pipeline.embedded_batches(pairs, order, embed, 2, 7, skip_steps, rows))
        arrays = (
            [inputs["embedding"].numpy() for inputs, _ in batches],
            [labels.numpy() for _, labels in batches],
        )
        return *map(np.stack, arrays), calls

    embeddings, labels, calls = embedded()
    assert labels.tolist() == batch_labels(pairs, tokenizer, 7)
    # Three steps at a time, and none after the last.
    assert [len(numbers) for numbers in calls] == [24, 24, 8]
    np.testing.assert_array_equal(embeddings[..., 0], first_ids.reshape(-1, 2)[labels.astype(int)])
    np.testing.assert_array_equal(embeddings[..., 1], np.arange(56).reshape(7, 4, 2))
    # A resumed run computes the sentences of its first group together again; a worker computes its
    # rows alone.
    for skip_steps, rows, expected in ((4, slice(None), calls[1:]), (0, slice(1, 4), None)):
        found, its_labels, later = embedded(skip_steps, rows)
        np.testing.assert_array_equal(found, embeddings[skip_steps:, rows])
        np.testing.assert_array_equal(its_labels, labels[skip_steps:, rows])
        assert later == (expected or [[n for n in numbers if n % 8 > 1] for numbers in calls])
