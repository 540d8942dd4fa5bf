"""`Bert` has the outputs and gradients of its SavedModel."""

import msgspec
import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.bert import Bert, equal_bert, probe_inputs
from bert_flow_tf.encoder.convert.weights import read_tf1_config
from bert_flow_tf.encoder.layer import SentenceEncoder

INPUTS = {
    "input_word_ids": tf.constant([[2, 7, 9, 4, 3], [2, 10, 3, 0, 0]]),
    "input_mask": tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    "input_type_ids": tf.constant([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]),
}
WORDS = INPUTS["input_mask"].numpy().astype(bool)


@pytest.fixture(
    scope="module", params=[("tiny_source", "gelu_tanh"), ("small_source", "gelu_erf")], ids=["tanh", "erf"]
)
def both(request):
    """An encoder and its `Bert` for training, for either GELU."""
    name, activation = request.param
    encoder = SentenceEncoder(request.getfixturevalue(name), "avg", trainable=True)
    assert encoder._bert.config.hidden_act == activation
    return encoder, Bert(encoder._bert.variables, encoder._bert.config, trainable=True)


def test_outputs_are_those_of_the_saved_model(both):
    encoder, bert = both
    expected = encoder._hub_layer(INPUTS, training=False)
    # A frozen BERT has operations of its own.
    frozen = Bert(bert.variables, bert.config)
    for one, training in ((bert, False), (bert, True), (frozen, True)):
        outputs = one(INPUTS, training=training)
        for a, b in zip(outputs["encoder_outputs"], expected["encoder_outputs"], strict=True):
            np.testing.assert_allclose(a.numpy()[WORDS], b.numpy()[WORDS], atol=3e-6)
            assert not training or not a.numpy()[~WORDS].any()
        np.testing.assert_array_equal(outputs["sequence_output"], outputs["encoder_outputs"][-1])
        np.testing.assert_allclose(outputs["pooled_output"], expected["pooled_output"], atol=3e-6)
    np.testing.assert_allclose(encoder.embed(INPUTS, portable=True), encoder(INPUTS), atol=3e-6)


def gradients(function, variables):
    """Return each variable's gradient of a weighted sum of all outputs."""
    with tf.GradientTape() as tape:
        outputs = function()
        states = [state * tf.cast(WORDS, tf.float32)[:, :, tf.newaxis] for state in outputs["encoder_outputs"]]
        total = sum(
            tf.reduce_sum(tf.sin(tf.range(tf.size(x), dtype=x.dtype)) * tf.reshape(x, [-1]))
            for x in (*states, outputs["pooled_output"])
        )
    return tape.gradient(total, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)


def test_gradients_are_those_of_the_saved_model(both):
    encoder, bert = both
    expected = gradients(lambda: encoder._hub_layer(INPUTS, training=False), bert.variables)
    found = gradients(lambda: bert(INPUTS, training=True), bert.variables)
    largest = max(np.abs(tf.convert_to_tensor(gradient)).max() for gradient in expected.values())
    for name, gradient in found.items():
        other = tf.convert_to_tensor(expected[name])
        np.testing.assert_allclose(tf.convert_to_tensor(gradient), other, atol=2e-5 * largest, err_msg=name)
    # The word embeddings alone have a slice per token, as in TF1: clipping by the global norm depends on it.
    slices = {name: gradient for name, gradient in found.items() if isinstance(gradient, tf.IndexedSlices)}
    assert [*slices] == ["word_embeddings/embeddings"]
    assert slices["word_embeddings/embeddings"].values.shape[0] == WORDS.sum()


def test_in_bfloat16_matrices_alone_are_rounded(encoder):
    for name, variable in encoder.in_bfloat16().variables_by_name.items():
        assert (variable.dtype == tf.bfloat16) == name.endswith(("kernel", "embeddings")), name


def test_only_a_bert_is_computed_as_one(encoder):
    variables, inputs = encoder.variables_by_name, probe_inputs(encoder.variables_by_name)
    outputs = encoder._hub_layer(inputs, training=False)
    recorded = read_tf1_config(encoder.source.encoder_dir.parent / "bert_config.json")
    # The graph does not show them.
    unseen = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02}
    assert equal_bert(variables, inputs, outputs, None).config == msgspec.structs.replace(recorded, **unseen)
    wrong = {"pooled_output": 1.001 * outputs["pooled_output"]}, {"encoder_outputs": outputs["encoder_outputs"][1:]}
    for other in wrong:
        assert equal_bert(variables, inputs, outputs | other, None) is None
    fewer = {name: value for name, value in variables.items() if name != "type_embeddings/embeddings"}
    more = variables | {"embedding_projection/kernel": tf.Variable(tf.zeros([2, 2]))}
    half = {name: tf.Variable(tf.cast(value, tf.float16)) for name, value in variables.items()}
    for other in (fewer, more, half):
        assert equal_bert(other, inputs, outputs, None) is None
