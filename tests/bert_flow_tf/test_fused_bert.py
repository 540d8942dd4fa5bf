"""BERT in fused operations: the SavedModel's outputs, over its own variables, or none at all."""

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder import SentenceEncoder
from bert_flow_tf.errors import UserError
from bert_flow_tf.fused_bert import FusedBert, fused_bert, rounded_to_bfloat16

INPUTS = {
    "input_word_ids": tf.constant([[2, 7, 9, 4, 3], [2, 10, 3, 0, 0]]),
    "input_mask": tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    "input_type_ids": tf.constant([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]),
}


def saved_model_of(encoder):
    """The SavedModel's own function, dropout off."""
    return lambda inputs: encoder._hub_layer(inputs, training=False)


@pytest.fixture(scope="module")
def tiny(tiny_source):
    return SentenceEncoder(tiny_source, "avg", trainable=True)


@pytest.mark.parametrize(("source", "approximate"), [("tiny_source", True), ("small_source", False)])
def test_outputs_are_the_saved_models_for_either_gelu(request, source, approximate):
    encoder = SentenceEncoder(request.getfixturevalue(source), "avg", trainable=False)
    fused = fused_bert(saved_model_of(encoder), encoder.variables_by_name)
    assert fused.approximate_gelu is approximate
    found, expected = fused(INPUTS), saved_model_of(encoder)(INPUTS)
    assert len(found["encoder_outputs"]) == encoder.num_layers
    words = INPUTS["input_mask"].numpy().astype(bool)
    for a, b in zip(found["encoder_outputs"], expected["encoder_outputs"], strict=True):
        np.testing.assert_allclose(a.numpy()[words], b.numpy()[words], atol=3e-6)
    np.testing.assert_array_equal(found["sequence_output"], found["encoder_outputs"][-1])
    np.testing.assert_allclose(found["pooled_output"], expected["pooled_output"], atol=3e-6)


def test_the_last_layer_at_the_first_token_alone_gives_the_same_there(tiny):
    fused = fused_bert(saved_model_of(tiny), tiny.variables_by_name)
    full, first = fused(INPUTS), fused(INPUTS, last_layer_first_token_only=True)
    assert first["sequence_output"].shape == (2, 1, 32)
    np.testing.assert_allclose(first["sequence_output"][:, 0], full["sequence_output"][:, 0], atol=3e-6)
    np.testing.assert_allclose(first["pooled_output"], full["pooled_output"], atol=3e-6)
    np.testing.assert_array_equal(first["encoder_outputs"][0], full["encoder_outputs"][0])


@pytest.mark.parametrize("pooling", ["avg", "cls", "paper-cls", "avg-last-2", "paper-concat-last-2"])
def test_every_pooling_is_that_of_the_saved_models_outputs(tiny_source, pooling):
    encoder = SentenceEncoder(tiny_source, pooling, trainable=False)
    expected = encoder._pooling(saved_model_of(encoder)(INPUTS), INPUTS["input_mask"])
    assert encoder._find_fused() is not None
    np.testing.assert_allclose(tf.function(encoder)(INPUTS), expected, atol=3e-6)


def test_what_training_changes_is_seen_at_once(tiny_source):
    encoder = SentenceEncoder(tiny_source, "avg", trainable=True)
    embed = tf.function(encoder)
    before = embed(INPUTS).numpy()
    for variable in encoder.trainable_variables:
        variable.assign(variable * 1.1)
    expected = encoder._pooling(saved_model_of(encoder)(INPUTS), INPUTS["input_mask"])
    np.testing.assert_allclose(embed(INPUTS), expected, atol=5e-6)
    assert np.abs(embed(INPUTS) - before).max() > 1e-3


def test_another_computation_on_a_berts_variables_is_told_apart(tiny):
    def without_positions(inputs):
        position = tiny.variables_by_name["position_embedding/embeddings"]
        value = position.numpy()
        position.assign(tf.zeros_like(position))
        outputs = saved_model_of(tiny)(inputs)
        position.assign(value)
        return outputs

    def fewer_layers(inputs):
        outputs = saved_model_of(tiny)(inputs)
        return outputs | {"encoder_outputs": outputs["encoder_outputs"][1:]}

    assert fused_bert(saved_model_of(tiny), tiny.variables_by_name) is not None
    assert fused_bert(without_positions, tiny.variables_by_name) is None
    assert fused_bert(fewer_layers, tiny.variables_by_name) is None


@pytest.mark.parametrize("name", ["transformer/layer_1/intermediate/bias", "type_embeddings/embeddings", None])
def test_variables_that_are_no_berts_are_left_to_the_saved_model(tiny, name):
    variables = {key: value for key, value in tiny.variables_by_name.items() if key != name}
    if name is None:
        variables["embedding_projection/kernel"] = tf.Variable(tf.zeros([2, 2]))
    assert fused_bert(lambda inputs: pytest.fail("was run"), variables) is None


def test_an_encoder_that_is_none_runs_as_its_saved_model_has_it(tiny_source, monkeypatch):
    expected = SentenceEncoder(tiny_source, "avg", trainable=False)(INPUTS)
    monkeypatch.setattr("bert_flow_tf.encoder.fused_bert", lambda reference, variables: None)
    encoder = SentenceEncoder(tiny_source, "avg", trainable=False)
    np.testing.assert_allclose(encoder(INPUTS), expected, atol=3e-6)
    with pytest.raises(
        UserError, match=r"dtype: found bfloat16 with .*, expected it with a BERT of tf-models-official"
    ):
        encoder.rounded_to_bfloat16(multiply_in_bfloat16=False)


@pytest.mark.parametrize("multiply_in_bfloat16", [False, True])
def test_bfloat16_rounds_matrices_and_leaves_biases_and_norms(tiny, multiply_in_bfloat16):
    variables = rounded_to_bfloat16(tiny.variables_by_name, multiply_in_bfloat16=multiply_in_bfloat16)
    for name, variable in tiny.variables_by_name.items():
        if name.endswith(("kernel", "embeddings")):
            assert variables[name].dtype == (tf.bfloat16 if multiply_in_bfloat16 else tf.float32)
            rounded = tf.cast(tf.cast(variable, tf.bfloat16), tf.float32)
            np.testing.assert_array_equal(tf.cast(variables[name], tf.float32), rounded)
        else:
            assert variables[name] is variable
    exact = FusedBert(tiny.variables_by_name, approximate_gelu=True)(INPUTS)["pooled_output"].numpy()
    found = FusedBert(variables, approximate_gelu=True)(INPUTS)["pooled_output"].numpy()
    assert 0 < np.abs(found - exact).max() < 0.03
    # Rounding what is multiplied, too, costs more than rounding the weights.
    once = FusedBert(rounded_to_bfloat16(tiny.variables_by_name, multiply_in_bfloat16=False), approximate_gelu=True)
    assert multiply_in_bfloat16 != np.array_equal(found, once(INPUTS)["pooled_output"])
