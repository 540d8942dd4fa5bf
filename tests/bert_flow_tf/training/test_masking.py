"""Masks have BERT's shares and depend on seed and number."""

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.encoder.weights import TextRules
from bert_flow_tf.training import pretrain
from bert_flow_tf.training.masked_lm import NOT_PREDICTED
from bert_flow_tf.training.settings import PretrainSettings

VOCAB = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *(f"w{i}" for i in range(25)),
    *(f"##{i}" for i in range(25)),
]
TOKENIZER = Tokenizer(VOCAB, TextRules(do_lower_case=True))
LENGTH = 20
SENTENCES = st.lists(
    st.lists(st.integers(5, len(VOCAB) - 1), min_size=1, max_size=LENGTH), min_size=1, max_size=5
)
OPTIONS = PretrainSettings(masked_lm_prob=0.15, max_seq_length=LENGTH, train_batch_size=8, seed=3)


def masked(sentences, numbers=None, **changes):
    """Arrays of the ids before and after, and of the labels."""
    tokens = TOKENIZER.pack(tf.ragged.constant(sentences, tf.int32, ragged_rank=1), LENGTH)
    numbers = range(len(sentences)) if numbers is None else numbers
    mask = functools.partial(pretrain.masked, TOKENIZER, dataclasses.replace(OPTIONS, **changes))
    # Many sentences are faster in a graph, few without tracing one.
    mask = tf.function(mask) if len(sentences) > 100 else mask
    inputs, labels = mask(tokens, tf.constant(numbers, tf.int64))
    return tokens["input_word_ids"].numpy(), inputs["input_word_ids"].numpy(), labels.numpy()


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    sentences=SENTENCES,
    prob=st.sampled_from([0.05, 0.15, 0.5, 0.99]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_share_of_a_sentence_is_predicted(sentences, prob, seed):
    ids, changed, labels = masked(sentences, masked_lm_prob=prob, seed=seed)
    predicted = labels != NOT_PREDICTED
    np.testing.assert_array_equal(labels[predicted], ids[predicted])
    np.testing.assert_array_equal(changed[~predicted], ids[~predicted])
    for sentence, row in zip(sentences, predicted, strict=True):
        pieces = min(len(sentence), LENGTH - 2)
        # TF1 counts all ids, and masks at least one.
        assert row.sum() == min(max(1, round((pieces + 2) * prob)), pieces)
        assert not row[0] and not row[pieces + 1 :].any()


def test_four_fifths_of_the_predicted_pieces_are_masked():
    sentences = np.random.default_rng(0).integers(5, 30, [2000, LENGTH - 2]).tolist()
    ids, changed, labels = masked(sentences, masked_lm_prob=0.5)
    predicted = labels != NOT_PREDICTED
    became_mask = (changed == TOKENIZER.mask_id)[predicted].mean()
    stayed = (changed == ids)[predicted].mean()
    # Of 20,000; a random piece is [MASK], or what was there, in one of 55 cases each.
    assert became_mask == pytest.approx(0.8 + 0.1 / len(VOCAB), abs=0.01)
    assert stayed == pytest.approx(0.1 + 0.1 / len(VOCAB), abs=0.01)
    others = changed[predicted & (changed != ids) & (changed != TOKENIZER.mask_id)]
    assert {*others.tolist()} == {*range(len(VOCAB))} - {TOKENIZER.mask_id}
    places = predicted[:, 1:-1].mean(axis=0)
    assert np.abs(places - places.mean()).max() < 0.05


def test_masks_depend_on_seed_and_number_alone():
    sentences = [[5, 6, 7, 8, 9, 10, 11, 12, 13, 14], [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]]
    _, changed, labels = masked(sentences, numbers=[70, 71])
    for i, length in enumerate((12, 14)):
        _, alone, its_labels = masked([sentences[i]], numbers=[70 + i])
        np.testing.assert_array_equal(alone[0], changed[i, :length])
        np.testing.assert_array_equal(its_labels[0], labels[i, :length])
    same = [masked([sentences[0]] * 30, numbers=[70] * 30, seed=seed)[2] for seed in (3, 4)]
    assert (same[0] == same[0][0]).all() and (same[0] != same[1]).any()
    assert len({row.tobytes() for row in masked([sentences[0]] * 30, numbers=range(30))[2]}) > 10


def test_epochs_have_all_sentences_and_resume_in_their_order():
    count = 21
    pieces = tf.ragged.constant([[5 + i, 6] for i in range(count)], tf.int32, ragged_rank=1)
    whole = list(pretrain.masked_batches(pieces, TOKENIZER, OPTIONS).take(11))
    rows, numbers = [], []
    for inputs, labels in whole:
        ids = np.where(
            labels.numpy() == NOT_PREDICTED, inputs["input_word_ids"].numpy(), labels.numpy()
        )
        rows += (ids[:, 1] - 5).tolist()
        numbers += inputs["occurrence"].numpy().tolist()
    assert numbers == [*range(88)]
    epochs = {tuple(rows[i * count : (i + 1) * count]) for i in range(4)}
    assert len(epochs) == 4 and {tuple(sorted(epoch)) for epoch in epochs} == {(*range(count),)}
    resumed = list(pretrain.masked_batches(pieces, TOKENIZER, OPTIONS, skip_steps=4).take(7))
    for found, expected in zip(tf.nest.flatten(resumed), tf.nest.flatten(whole[4:]), strict=True):
        np.testing.assert_array_equal(found, expected)
