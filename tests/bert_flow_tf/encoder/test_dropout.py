"""Dropout masks depend on nothing but seed and length."""

import numpy as np
import tensorflow as tf

from bert_flow_tf.encoder.bert import Dropout
from bert_flow_tf.encoder.weights import BertConfig

LAYERS, WIDTH, HEADS = 2, 16, 4
PER_TOKEN, PER_PAIR = (2 * LAYERS + 1) * WIDTH, LAYERS * HEADS


def dropout_of(lengths, seeds, rates=(0.1, 0.3), seq=None):
    """Return `Dropout` of sentences of these lengths with seeds (7, number)."""
    shape = {
        "vocab_size": 9,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
    }
    shape |= {"intermediate_size": 32, "max_position_embeddings": 64, "hidden_act": "gelu_tanh"}
    config = BertConfig(
        **shape, hidden_dropout_prob=rates[0], attention_probs_dropout_prob=rates[1]
    )
    mask = tf.sequence_mask(lengths, seq, dtype=tf.int32)
    return Dropout(config, tf.constant([[7, seed] for seed in seeds], tf.int64), mask)


def test_masks_drop_at_their_rates_and_independently():
    drawn = dropout_of([60] * 40, range(40))
    hidden, attention = (
        mask.numpy().astype(float) for mask in (drawn.hidden_masks, drawn.attention_masks)
    )
    assert hidden.shape == (40 * 60, PER_TOKEN) and attention.shape == (40, PER_PAIR, 60, 60)
    # With so many draws, .0017 and .0008 are four standard deviations.
    assert abs(hidden.mean() - 0.9) < 0.0028 and abs(attention.mean() - 0.7) < 0.0018
    correlations = np.corrcoef(hidden.reshape(40, -1)) - np.eye(40)
    assert np.abs(correlations).max() < 0.075
    assert np.abs(np.corrcoef(hidden.T) - np.eye(PER_TOKEN)).max() < 0.1


def test_masks_of_a_sentence_do_not_depend_on_its_batch():
    alone = dropout_of([3], [5])
    among = dropout_of([4, 3, 2], [9, 5, 5], seq=6)
    np.testing.assert_array_equal(among.hidden_masks[4:7], alone.hidden_masks)
    np.testing.assert_array_equal(among.attention_masks[1, :, :3, :3], alone.attention_masks[0])
    assert not np.array_equal(dropout_of([3], [6]).hidden_masks, alone.hidden_masks)


def test_each_site_has_its_own_mask_and_scales_the_rest():
    drawn, x, weights = (
        dropout_of([3, 2], [1, 2], (0.25, 0.5)),
        tf.ones([5, WIDTH]),
        tf.ones([2, HEADS, 3, 3]),
    )
    with tf.GradientTape() as tape:
        tape.watch(x)
        dropped = drawn.hidden(x, 1)
    # The gradient is scaled like the value.
    np.testing.assert_array_equal(tape.gradient(dropped, x), dropped)
    sites = [drawn.hidden(x, i).numpy() for i in range(2 * LAYERS + 1)]
    layers = [drawn.attention(weights, i).numpy() for i in range(LAYERS)]
    for kept, rate in ((sites, 0.25), (layers, 0.5)):
        np.testing.assert_allclose(np.unique(kept), [0, 1 / (1 - rate)], rtol=1e-6)
        assert len({each.tobytes() for each in kept}) == len(kept)
    for rates in ((0.5, 0.0), (0.0, 0.5), (0.0, 0.0)):
        drawn = dropout_of([3, 2], [1, 2], rates)
        assert (drawn.hidden(x, 0) is x, drawn.attention(weights, 0) is weights) == (
            rates[0] == 0,
            rates[1] == 0,
        )
