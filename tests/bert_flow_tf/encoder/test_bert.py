"""`Bert` has the outputs and gradients of tf-models' encoder."""

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.bert import Bert
from bert_flow_tf.encoder.convert.tf_hub import keras_name
from bert_flow_tf.encoder.weights import WORD_EMBEDDINGS

INPUTS = {
    "input_word_ids": tf.constant([[2, 7, 9, 4, 3], [2, 10, 3, 0, 0]]),
    "input_mask": tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    "input_type_ids": tf.constant([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]),
}
WORDS = INPUTS["input_mask"].numpy().astype(bool)


@pytest.fixture(
    scope="module",
    params=[("tiny_source", "gelu_tanh"), ("small_source", "gelu_erf")],
    ids=["tanh", "erf"],
)
def both(request, require):
    """tf-models' encoder and a `Bert` for training, for either GELU."""
    require("official")
    from bert_flow_tf.export.tf_hub import tf_models_encoder

    name, activation = request.param
    bert = request.getfixturevalue(name).pretrained
    assert bert.config.hidden_act == activation
    return tf_models_encoder(bert)[0], Bert(bert.weights, bert.config, trainable=True)


def test_outputs_are_those_of_tf_models(both):
    encoder, bert = both
    expected = encoder(INPUTS, training=False)
    # A frozen BERT has operations of its own.
    frozen = Bert(bert.variables, bert.config)
    portable = Bert(bert.variables, bert.config, portable=True)
    for one, training in ((bert, False), (bert, True), (frozen, True), (portable, False)):
        outputs = one(INPUTS, training=training)
        for a, b in zip(outputs["encoder_outputs"], expected["encoder_outputs"], strict=True):
            np.testing.assert_allclose(a.numpy()[WORDS], b.numpy()[WORDS], atol=3e-6)
            assert not training or not a.numpy()[~WORDS].any()
        np.testing.assert_array_equal(outputs["sequence_output"], outputs["encoder_outputs"][-1])
        np.testing.assert_allclose(outputs["pooled_output"], expected["pooled_output"], atol=3e-6)


def gradients(function, variables):
    """Return each variable's gradient of a weighted sum of all outputs."""
    with tf.GradientTape() as tape:
        outputs = function()
        states = [
            state * tf.cast(WORDS, tf.float32)[:, :, tf.newaxis]
            for state in outputs["encoder_outputs"]
        ]
        total = sum(
            tf.reduce_sum(tf.sin(tf.range(tf.size(x), dtype=x.dtype)) * tf.reshape(x, [-1]))
            for x in (*states, outputs["pooled_output"])
        )
    return tape.gradient(total, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)


def test_gradients_are_those_of_tf_models(both):
    encoder, bert = both
    theirs = {variable.name.removesuffix(":0"): variable for variable in encoder.variables}
    theirs = {name: theirs[keras_name(name)] for name in bert.variables}
    expected = gradients(lambda: encoder(INPUTS, training=False), theirs)
    found = gradients(lambda: bert(INPUTS, training=True), bert.variables)
    largest = max(np.abs(tf.convert_to_tensor(gradient)).max() for gradient in expected.values())
    for name, gradient in found.items():
        other = tf.reshape(expected[name], gradient.shape)
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient), other, atol=2e-5 * largest, err_msg=name
        )
    # The word embeddings alone have a slice per token, as in TF1: clipping by the global norm
    # depends on it.
    slices = {
        name: gradient for name, gradient in found.items() if isinstance(gradient, tf.IndexedSlices)
    }
    assert [*slices] == [WORD_EMBEDDINGS]
    assert slices[WORD_EMBEDDINGS].values.shape[0] == WORDS.sum()


def test_in_bfloat16_matrices_alone_are_rounded(encoder):
    for name, variable in encoder.in_bfloat16().variables_by_name.items():
        assert (variable.dtype == tf.bfloat16) == name.endswith(("kernel", "_embeddings")), name
