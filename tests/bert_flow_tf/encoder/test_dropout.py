"""Dropout: rates from a SavedModel's graph, and masks that nothing but seed and length decide."""

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.dropout import DropoutRates, draw_masks, drop, dropout_rates

SHAPE = {"layers": 2, "width": 16, "heads": 4}
PER_TOKEN, PER_PAIR = 5 * 16, 2 * 4


RATES = DropoutRates(0.1, 0.3)


def masks_of(lengths, seeds, rates=RATES, seq=None):
    """`Masks` of sentences of these lengths, and of seeds (7, number), padded to `seq` or the longest."""
    mask = tf.sequence_mask(lengths, seq, dtype=tf.int32)
    return draw_masks(rates, tf.constant([[7, seed] for seed in seeds], tf.int64), mask, **SHAPE)


def test_masks_drop_at_their_rates_and_independently():
    masks = masks_of([60] * 40, range(40))
    assert masks.hidden.shape == (40 * 60, PER_TOKEN) and masks.attention.shape == (40, PER_PAIR, 60, 60)
    hidden, attention = masks.hidden.numpy().astype(float), masks.attention.numpy().astype(float)
    # Of so many draws, .0017 and .0008 are four standard deviations.
    assert abs(hidden.mean() - 0.9) < 0.0028 and abs(attention.mean() - 0.7) < 0.0018
    by_sentence = hidden.reshape(40, -1)
    correlations = np.corrcoef(by_sentence) - np.eye(40)
    assert np.abs(correlations).max() < 0.075
    assert np.abs(np.corrcoef(hidden.T) - np.eye(PER_TOKEN)).max() < 0.1


def test_a_sentences_masks_do_not_depend_on_what_shares_its_batch():
    alone = masks_of([3], [5])
    among = masks_of([4, 3, 2], [9, 5, 5], seq=6)
    np.testing.assert_array_equal(among.hidden[4:7], alone.hidden)
    np.testing.assert_array_equal(among.attention[1, :, :3, :3], alone.attention[0])
    assert not np.array_equal(masks_of([3], [6]).hidden, alone.hidden)


@pytest.mark.parametrize("rates", [DropoutRates(0.5, 0.0), DropoutRates(0.0, 0.5)])
def test_where_a_rate_is_0_nothing_is_drawn(rates):
    masks = masks_of([3, 2], [1, 2], rates)
    assert (masks.hidden is None) is (rates.hidden == 0) and (masks.attention is None) is (rates.attention == 0)


def test_what_is_kept_is_scaled_and_so_is_its_gradient():
    x, kept = tf.constant([1.0, 2.0, 3.0]), tf.constant([True, False, True])
    with tf.GradientTape() as tape:
        tape.watch(x)
        dropped = drop(x, kept, 0.25)
    np.testing.assert_allclose(dropped, [4 / 3, 0, 4], rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(dropped, x, tf.constant([1.0, 1.0, 2.0])), [4 / 3, 0, 8 / 3], rtol=1e-6)


def function_of(hidden, attention, *, extra=False, nested=False, layers=2):
    """tf.function with the dropouts of a BERT of so many layers, drawn as Keras and TF-Hub's BERTs do."""

    def dropped(x, rate):
        if not nested:
            return tf.nn.dropout(x, rate)
        return tf.function(lambda x: tf.nn.dropout(x, rate), autograph=False)(x)

    def call(x, training):
        if not training:
            return x
        x = dropped(x, hidden)
        for _ in range(layers):
            x = dropped(tf.nn.softmax(x), attention)
            x = dropped(dropped(x + 1.0, hidden) * 2.0, hidden)
        return dropped(x, hidden) if extra else x

    function = tf.function(call, autograph=False)
    for training in (False, True):
        function.get_concrete_function(tf.TensorSpec([None, 4]), training)
    return ConcreteFunctions(function._list_all_concrete_functions())


class ConcreteFunctions:
    """What a SavedModel's function has of a tf.function."""

    def __init__(self, concrete_functions):
        self.concrete_functions = concrete_functions


@pytest.mark.parametrize(
    ("rates", "options", "expected"),
    [
        ((0.1, 0.1), {}, (0.1, 0.1)),
        ((0.25, 0.5), {}, (0.25, 0.5)),
        ((0.25, 0.0), {}, (0.25, 0.0)),
        ((0.0, 0.5), {}, (0.0, 0.5)),
        ((0.0, 0.0), {}, (0.0, 0.0)),
        ((0.1, 0.1), {"nested": True}, (0.1, 0.1)),
        # A function's argument does not show whether it is a softmax.
        ((0.25, 0.5), {"nested": True}, None),
        ((0.1, 0.1), {"extra": True}, None),
        ((0.1, 0.1), {"layers": 3}, None),
    ],
)
def test_rates_are_read_from_the_graph_or_not_at_all(rates, options, expected):
    found = dropout_rates(function_of(*rates, **options), 2)
    if expected is None:
        assert found is None
    else:
        assert (found.hidden, found.attention) == pytest.approx(expected)


def inner_dropout(x):
    """Dropout of embeddings and of all that a layer computes but attention, which has none."""
    x = tf.nn.dropout(x, 0.1)
    for _ in range(2):
        x = tf.nn.dropout(tf.nn.softmax(x) + 1.0, 0.1)
        x = tf.nn.dropout(tf.nn.dropout(tf.nn.gelu(x), 0.1) * 2.0, 0.1)
    return x


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x + tf.random.uniform(tf.shape(x)),
        lambda x: x + tf.random.normal(tf.shape(x)),
        lambda x: x + tf.random.stateless_truncated_normal(tf.shape(x), [1, 2]),
        lambda x: tf.cond(x[0, 0] > 0, lambda: tf.nn.dropout(x, 0.1), lambda: x),
        lambda x: tf.while_loop(lambda i, x: i < 7, lambda i, x: (i + 1, tf.nn.dropout(x, 0.1)), [0, x])[1],
        inner_dropout,
    ],
    ids=["uniform", "normal", "truncated", "branch", "loop", "inner"],
)
def test_what_is_drawn_in_another_way_than_berts_dropout_is_not_taken_for_it(draw):
    function = tf.function(draw, autograph=False)
    function.get_concrete_function(tf.TensorSpec([None, 4]))
    assert dropout_rates(ConcreteFunctions(function._list_all_concrete_functions()), 2) is None


def test_rates_of_converted_encoders_are_those_of_their_configuration(small_source, tiny_source):
    for source, layers, expected in ((small_source, 1, 0.5), (tiny_source, 3, 0.0)):
        function = tf.saved_model.load(str(source.encoder_dir)).__call__
        assert dropout_rates(function, layers) == DropoutRates(expected, expected)
