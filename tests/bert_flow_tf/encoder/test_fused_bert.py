"""BERT in fused operations: the SavedModel's outputs, over its own variables, or none at all."""

import msgspec
import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.convert.bert_config import read_tf1_config
from bert_flow_tf.encoder.fused_bert import fused_bert
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.errors import ArgumentError

INPUTS = {
    "input_word_ids": tf.constant([[2, 7, 9, 4, 3], [2, 10, 3, 0, 0]]),
    "input_mask": tf.constant([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    "input_type_ids": tf.constant([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]),
}


def saved_model_of(encoder):
    """The SavedModel's own function, dropout off."""
    return lambda inputs: encoder._hub_layer(inputs, training=False)


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
    config = read_tf1_config(encoder.source.encoder_dir.parent / "bert_config.json")
    # What no variable and no output shows.
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")
    unseen = {name: getattr(fused.config, name) for name in names}
    assert fused.config == msgspec.structs.replace(config, **unseen)


def test_the_last_layer_at_the_first_token_alone_gives_the_same_there(encoder):
    fused = fused_bert(saved_model_of(encoder), encoder.variables_by_name)
    full, first = fused(INPUTS), fused(INPUTS, last_layer_first_token_only=True)
    assert first["sequence_output"].shape == (2, 1, 32)
    np.testing.assert_allclose(first["sequence_output"][:, 0], full["sequence_output"][:, 0], atol=3e-6)
    np.testing.assert_allclose(first["pooled_output"], full["pooled_output"], atol=3e-6)
    np.testing.assert_array_equal(first["encoder_outputs"][0], full["encoder_outputs"][0])


def test_what_training_changes_is_seen_at_once(tiny_source):
    encoder = SentenceEncoder(tiny_source, "avg", trainable=True)
    embed = tf.function(encoder)
    before = embed(INPUTS).numpy()
    for variable in encoder.trainable_variables:
        variable.assign(variable * 1.1)
    expected = encoder.pooling(saved_model_of(encoder)(INPUTS), INPUTS["input_mask"])
    np.testing.assert_allclose(embed(INPUTS), expected, atol=5e-6)
    assert np.abs(embed(INPUTS) - before).max() > 1e-3


def test_another_computation_on_a_berts_variables_is_told_apart(encoder):
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

    assert fused_bert(saved_model_of(encoder), encoder.variables_by_name) is not None
    assert fused_bert(without_positions, encoder.variables_by_name) is None
    assert fused_bert(fewer_layers, encoder.variables_by_name) is None


def test_variables_of_half_precision_are_left_to_the_saved_model(encoder):
    halves = {name: tf.Variable(tf.cast(v, tf.float16)) for name, v in encoder.variables_by_name.items()}
    assert fused_bert(lambda inputs: pytest.fail("was run"), halves) is None


@pytest.mark.parametrize("name", ["transformer/layer_1/intermediate/bias", "type_embeddings/embeddings", None])
def test_variables_that_are_no_berts_are_left_to_the_saved_model(encoder, name):
    variables = {key: value for key, value in encoder.variables_by_name.items() if key != name}
    if name is None:
        variables["embedding_projection/kernel"] = tf.Variable(tf.zeros([2, 2]))
    assert fused_bert(lambda inputs: pytest.fail("was run"), variables) is None


def test_an_encoder_that_is_none_runs_as_its_saved_model_has_it_and_is_not_rounded(tiny_source, encoder, monkeypatch):
    monkeypatch.setattr("bert_flow_tf.encoder.layer.fused_bert", lambda reference, variables: None)
    other = SentenceEncoder(tiny_source, "avg", trainable=False)
    np.testing.assert_allclose(other(INPUTS), encoder(INPUTS), atol=3e-6)
    with pytest.raises(ArgumentError, match=r"dtype: found bfloat16 with .*, expected it with a BERT of tf-models"):
        other.rounded_to_bfloat16(multiply_in_bfloat16=False)
