"""Pairs become ids and batches in the original's order."""

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.data.tasks import Examples, get_task
from bert_flow_tf.runs.settings import Settings
from bert_flow_tf.training import pairs as input_pipeline
from tests.bert_flow_tf import small_runs
from tests.bert_flow_tf.sample_pairs import make_pairs

STSB = get_task("sts-b")


def token_batches(pairs, tokenizer, skip_steps=0, rows=slice(None), **flags):
    settings = Settings(**{"max_seq_length": 10, "train_batch_size": 4, "seed": 3} | flags)
    return input_pipeline.token_batches(pairs, tokenizer, settings, skip_steps, rows)


def batch_labels(pairs, tokenizer, steps, **options):
    pairs = input_pipeline.Pairs(pairs.pieces, np.arange(len(pairs.labels)))
    return [labels.numpy().tolist() for _, labels in token_batches(pairs, tokenizer, **options).take(steps)]


def test_scores_are_scaled_and_classes_are_ids():
    for task, labels, expected in (
        ("sick-r", np.float32([1, 3, 5]), np.float32([0.2, 0.6, 1.0])),
        ("qnli-regression", np.float32([0, 1]), np.float32([0, 1])),
        ("mnli", np.int32([2, 0]), np.int32([2, 0])),
    ):
        found = input_pipeline.scaled_labels(Examples(["a"], ["b"], labels, has_labels=True), get_task(task))
        np.testing.assert_allclose(found, expected)
        assert found.dtype == expected.dtype


def test_copies_of_a_pair_have_a_masked_token_each(tokenizer):
    examples = Examples(["w1 w2 w3", ""], ["w4", "w5 w6"], np.float32([1, 2]), has_labels=True)
    labels = input_pipeline.scaled_labels(examples, STSB)
    pairs = input_pipeline.tokenize_pairs(tokenizer, examples, labels, 10)
    copies = input_pipeline.duplicate(pairs, 3, tokenizer.mask_id, seed=1)
    rows = copies.pieces.to_list()
    np.testing.assert_array_equal(copies.labels, np.repeat(labels, 3))
    assert rows[:2] == [[6, 7, 8], [9]] and rows[6:8] == [[], [10, 11]]
    for a, b in zip(rows[2:6:2], rows[3:6:2], strict=True):
        assert b == [tokenizer.mask_id] and a.count(tokenizer.mask_id) == 1 and len(a) == 3
    assert rows[8] == rows[10] == []
    assert input_pipeline.duplicate(pairs, 1, tokenizer.mask_id, seed=1) is pairs


def test_a_run_has_labelled_pairs_and_a_masked_copy_of_each(tokenizer, tmp_path):
    data = small_runs.write_stsb(tmp_path)
    settings = Settings(task_name="STS-B", data_dir=str(data), num_examples=5, dupe_factor=2)
    pairs, num_examples = input_pipeline.read_training_data(settings, STSB, tokenizer)
    assert num_examples == 24 and len(pairs.labels) == 48
    # The label is (-10 - 0) / 5.
    assert np.sum(pairs.labels == -2.0) == 19 * 2 and np.sum(pairs.labels >= 0) == 5 * 2
    rows = pairs.pieces.to_list()
    firsts, copies = [*rows[::4], *rows[1::4]], [*rows[2::4], *rows[3::4]]
    for first, copy in zip(firsts, copies, strict=True):
        kept = [before == after for before, after in zip(first, copy, strict=True)]
        assert kept.count(False) == 1 and copy[kept.index(False)] == tokenizer.mask_id


def test_the_fingerprint_tells_texts_and_labels_apart(tokenizer):
    pairs = make_pairs(tokenizer)
    assert input_pipeline.fingerprint(pairs) == input_pipeline.fingerprint(make_pairs(tokenizer))
    others = [
        make_pairs(tokenizer, n=5),
        make_pairs(tokenizer, max_seq_length=6),
        input_pipeline.Pairs(pairs.pieces, pairs.labels[::-1]),
        input_pipeline.Pairs(pairs.pieces, pairs.labels + 1),
    ]
    assert len({input_pipeline.fingerprint(p) for p in [pairs, *others]}) == 5


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
    n = 3000
    pairs = input_pipeline.Pairs(tf.ragged.constant([[1]] * 2 * n, tf.int32), np.arange(n))
    training = Settings(train_batch_size=n, seed=3)
    embed = lambda rows, numbers: np.zeros([len(rows), 1], np.float32)  # noqa: E731
    (batch,) = input_pipeline.embedded_batches(embed, 1, pairs, training, 1, 0, slice(None))
    order = batch[1].numpy()
    # What leaves the buffer is among it and as many as have left it before: the first n + 1,000.
    assert np.all(order[:2000] < np.arange(2000) + 1000)
    assert order[:200].max() > 1000


@pytest.mark.differs("Batches are padded")
@pytest.mark.parametrize(("pad_to_max", "length"), [(False, 6), (True, 10)])
def test_tokens_are_padded_to_the_longest_or_to_the_limit(tokenizer, pad_to_max, length):
    pairs = make_pairs(tokenizer, n=4)
    ((tokens, labels),) = token_batches(pairs, tokenizer, pad_to_max_seq_length=pad_to_max).take(1)
    ids = np.zeros([4, 2, length], np.int32)
    for row, label in enumerate(np.round(labels.numpy() * 5).astype(int)):
        ids[row, 0, : label + 3], ids[row, 1, :3] = [2, *range(5, label + 6), 3], [2, 25 + label, 3]
    np.testing.assert_array_equal(tokens["input_word_ids"], ids)
    np.testing.assert_array_equal(tokens["input_mask"], ids > 0)


def test_rows_of_a_batch_keep_their_order_and_numbers(tokenizer):
    pairs = make_pairs(tokenizer)

    def steps(rows):
        batches = token_batches(pairs, tokenizer, skip_steps=1, rows=rows)
        return [(inputs["occurrence"].numpy(), labels.numpy()) for inputs, labels in batches.take(3)]

    whole = steps(slice(None))
    for step, (numbers, _) in enumerate(whole):
        np.testing.assert_array_equal(numbers, 8 * (step + 1) + np.arange(8).reshape(4, 2))
    for one, *parts in zip(whole, steps(slice(0, 1)), steps(slice(1, 4)), strict=True):
        for all_rows, first, rest in zip(one, *parts, strict=True):
            np.testing.assert_array_equal(np.concatenate([first, rest]), all_rows)


def embedded(pairs, calls, *, steps=7, skip_steps=0, rows=slice(None)):
    """Return the steps' embeddings (first id and number) and labels."""

    def embed(rows, occurrences):
        calls.append(occurrences)
        pieces = tf.gather(pairs.pieces, rows)
        return np.stack([pieces[:, :1].to_tensor()[:, 0].numpy(), occurrences], axis=1).astype(np.float32)

    training = Settings(train_batch_size=4, seed=3)
    batches = input_pipeline.embedded_batches(embed, 2, pairs, training, steps, skip_steps, rows)
    return [(inputs["embedding"].numpy(), labels.numpy()) for inputs, labels in batches]


def test_embeddings_ahead_are_of_the_same_pairs_and_numbers(tokenizer, monkeypatch):
    monkeypatch.setattr(input_pipeline, "SENTENCES_AHEAD", 24)
    pairs = make_pairs(tokenizer)
    labels = np.arange(len(pairs.labels), dtype=np.float32)
    pairs = input_pipeline.Pairs(pairs.pieces, labels)
    calls = []
    batches = embedded(pairs, calls)
    expected = batch_labels(pairs, tokenizer, 7)
    assert [labels.tolist() for _, labels in batches] == expected
    # Three steps at a time, and none after the last.
    assert [len(numbers) for numbers in calls] == [24, 24, 8]
    first_ids = pairs.pieces[:, :1].to_tensor()[:, 0].numpy().reshape(-1, 2)
    for step, (embeddings, labels) in enumerate(batches):
        np.testing.assert_array_equal(embeddings[..., 0], first_ids[labels.astype(int)])
        np.testing.assert_array_equal(embeddings[..., 1].reshape(-1), 8 * step + np.arange(8))
    # A resumed run computes the sentences of its first group together again.
    later = []
    resumed = embedded(pairs, later, skip_steps=4)
    assert [numbers.tolist() for numbers in later] == [numbers.tolist() for numbers in calls[1:]]
    for found, wanted in zip(resumed, batches[4:], strict=True):
        np.testing.assert_array_equal(found[0], wanted[0])
        np.testing.assert_array_equal(found[1], wanted[1])
    # Of some rows, only these are computed.
    some = embedded(pairs, later, rows=slice(1, 4))
    assert [len(numbers) for numbers in later[-3:]] == [18, 18, 6]
    for found, wanted in zip(some, batches, strict=True):
        np.testing.assert_array_equal(found[0], wanted[0][1:])
        np.testing.assert_array_equal(found[1], wanted[1][1:])
