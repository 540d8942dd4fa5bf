"""`Bert` has the outputs and gradients of its SavedModel."""

import msgspec
import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.bert import Bert, bert_of, probe_inputs
from bert_flow_tf.encoder.convert.weights import read_tf1_config
from bert_flow_tf.encoder.layer import SentenceEncoder

INPUTS = {
    "input_word_ids": tf.constant([[2, 7, 9, 4, 3], [2, 10, 3, 0, 0]]),
    "input_mask": tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    "input_type_ids": tf.constant([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]),
}
WORDS = INPUTS["input_mask"].numpy().astype(bool)
SEEDS = tf.constant([[1, 4], [1, 9]], tf.int64)


@pytest.fixture(
    scope="module", params=[("tiny_source", "gelu_tanh"), ("small_source", "gelu_erf")], ids=["tanh", "erf"]
)
def both(request):
    """An encoder and its `Bert` for training, for either GELU."""
    name, activation = request.param
    encoder = SentenceEncoder(request.getfixturevalue(name), "avg", trainable=True)
    assert encoder._bert.config.hidden_act == activation
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2}
    return encoder, like(encoder._bert, trainable=True, **rates)


def like(bert, *, trainable=False, **changes):
    """Another `Bert` on the same variables, with changes of its configuration."""
    return Bert(bert.variables, msgspec.structs.replace(bert.config, **changes), trainable=trainable)


def saved_model_of(encoder):
    return lambda inputs: encoder._hub_layer(inputs, training=False)


def found(encoder, expected=None):
    """Return `bert_of` an encoder, or of other variables and outputs."""
    inputs = probe_inputs(encoder.variables_by_name)
    expected = saved_model_of(encoder)(inputs) if expected is None else expected(inputs)
    return bert_of(encoder.variables_by_name, inputs, expected, None)


def test_outputs_are_those_of_the_saved_model(both):
    encoder, bert = both
    expected = saved_model_of(encoder)(INPUTS)
    for training in (False, True):
        outputs = bert(INPUTS, training=training)
        for a, b in zip(outputs["encoder_outputs"], expected["encoder_outputs"], strict=True):
            np.testing.assert_allclose(a.numpy()[WORDS], b.numpy()[WORDS], atol=3e-6)
            assert not training or not a.numpy()[~WORDS].any()
        np.testing.assert_array_equal(outputs["sequence_output"], outputs["encoder_outputs"][-1])
        np.testing.assert_allclose(outputs["pooled_output"], expected["pooled_output"], atol=3e-6)
    np.testing.assert_allclose(encoder.embed(INPUTS, portable=True), encoder(INPUTS), atol=3e-6)


def test_the_last_layer_at_the_first_token_gives_the_same_there(encoder):
    full, first = encoder._bert(INPUTS), encoder._bert(INPUTS, first_token_only=True)
    assert first["sequence_output"].shape == (2, 1, 32)
    np.testing.assert_allclose(first["sequence_output"][:, 0], full["sequence_output"][:, 0], atol=3e-6)
    np.testing.assert_allclose(first["pooled_output"], full["pooled_output"], atol=3e-6)
    np.testing.assert_array_equal(first["encoder_outputs"][0], full["encoder_outputs"][0])


def gradients(function, variables):
    """Return each variable's gradient of a weighted sum of all outputs."""
    with tf.GradientTape() as tape:
        outputs = function()
        states = [state * tf.cast(WORDS, tf.float32)[:, :, tf.newaxis] for state in outputs["encoder_outputs"]]
        total = tf.add_n(
            [
                tf.reduce_sum(tf.sin(tf.range(tf.size(x), dtype=x.dtype)) * tf.reshape(x, [-1]))
                for x in (*states, outputs["pooled_output"])
            ]
        )
    found = tape.gradient(total, list(variables.values()), unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return [tf.convert_to_tensor(each).numpy() for each in found]


def test_gradients_are_those_of_the_saved_model(both):
    encoder, bert = both
    expected = gradients(lambda: saved_model_of(encoder)(INPUTS), bert.variables)
    largest = max(np.abs(gradient).max() for gradient in expected)
    for a, b in zip(gradients(lambda: bert(INPUTS, training=True), bert.variables), expected, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5 * largest)


def test_padding_changes_neither_outputs_nor_gradients(both):
    _, bert = both
    padded = {name: tf.pad(value, [[0, 0], [0, 4]]) for name, value in INPUTS.items()}

    def cut():
        outputs = bert(padded, SEEDS, training=True)
        return outputs | {"encoder_outputs": [state[:, :5] for state in outputs["encoder_outputs"]]}

    expected = bert(INPUTS, SEEDS, training=True)["sequence_output"]
    np.testing.assert_allclose(cut()["encoder_outputs"][-1], expected, atol=2e-6)
    of_all = gradients(lambda: bert(INPUTS, SEEDS, training=True), bert.variables)
    for a, b in zip(gradients(cut, bert.variables), of_all, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5 * max(1.0, np.abs(b).max()))
    # A frozen BERT has operations of its own.
    frozen = like(bert)(INPUTS, SEEDS, training=True)["sequence_output"]
    np.testing.assert_allclose(frozen, expected, atol=5e-6)


def test_with_dropout_the_gradient_is_the_slope(both):
    _, bert = both
    variable = bert.variables["transformer/layer_0/self_attention/value/bias"]

    def total():
        return tf.reduce_sum(tf.sin(bert(INPUTS, SEEDS, training=True)["sequence_output"] * 3.0))

    with tf.GradientTape() as tape:
        value = total()
    gradient = tape.gradient(value, variable).numpy()
    direction = np.cos(np.arange(gradient.size)).reshape(gradient.shape).astype(np.float32)
    before, values = variable.numpy(), []
    for step in (0.01, -0.01):
        variable.assign(before + step * direction)
        values.append(float(total()))
    variable.assign(before)
    assert (values[0] - values[1]) / 0.02 == pytest.approx(float(np.sum(gradient * direction)), rel=0.02, abs=0.01)


def test_in_bfloat16_matrices_alone_are_rounded(encoder):
    rounded = encoder.in_bfloat16()
    for name, variable in encoder.variables_by_name.items():
        other = rounded.variables_by_name[name]
        if name.endswith(("kernel", "embeddings")):
            assert other.dtype == tf.bfloat16
            np.testing.assert_array_equal(other, tf.cast(variable, tf.bfloat16))
        else:
            assert other is variable
    assert 0 < np.abs(rounded(INPUTS) - encoder(INPUTS)).max() < 0.03


def test_a_traced_encoder_sees_changed_variables(both):
    encoder, _ = both
    embed = tf.function(encoder)
    before = embed(INPUTS).numpy()
    values = [variable.numpy() for variable in encoder.trainable_variables]
    for variable, value in zip(encoder.trainable_variables, values, strict=True):
        variable.assign(value * 1.1)
    expected = encoder.pooling(saved_model_of(encoder)(INPUTS), INPUTS["input_mask"])
    np.testing.assert_allclose(embed(INPUTS), expected, atol=5e-6)
    assert np.abs(embed(INPUTS) - before).max() > 1e-3
    for variable, value in zip(encoder.trainable_variables, values, strict=True):
        variable.assign(value)


def test_another_computation_on_a_berts_variables_is_none(encoder):
    def without_positions(inputs):
        position = encoder.variables_by_name["position_embedding/embeddings"]
        value = position.numpy()
        position.assign(tf.zeros_like(position))
        outputs = saved_model_of(encoder)(inputs)
        position.assign(value)
        return outputs

    def fewer_layers(inputs):
        outputs = saved_model_of(encoder)(inputs)
        return outputs | {"encoder_outputs": outputs["encoder_outputs"][1:]}

    recorded = read_tf1_config(encoder.source.encoder_dir.parent / "bert_config.json")
    # The graph does not show them.
    unseen = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02}
    assert found(encoder).config == msgspec.structs.replace(recorded, **unseen)
    assert found(encoder, without_positions) is None
    assert found(encoder, fewer_layers) is None


@pytest.mark.parametrize("name", ["transformer/layer_1/intermediate/bias", "type_embeddings/embeddings", None, "half"])
def test_variables_that_are_no_berts_are_none(encoder, name):
    variables = {key: value for key, value in encoder.variables_by_name.items() if key != name}
    if name is None:
        variables["embedding_projection/kernel"] = tf.Variable(tf.zeros([2, 2]))
    if name == "half":
        variables = {key: tf.Variable(tf.cast(value, tf.float16)) for key, value in variables.items()}
    assert bert_of(variables, INPUTS, {}, None) is None
