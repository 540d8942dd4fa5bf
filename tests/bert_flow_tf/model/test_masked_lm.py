"""Loss and gradients of masked language modelling are those of transformers' `BertForMaskedLM`."""

import types

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.convert.hugging_face import hugging_face_name
from bert_flow_tf.encoder.convert.weights import keras_names, read_tf1_config, to_tf1_shape
from bert_flow_tf.model.masked_lm import NOT_PREDICTED, MaskedLanguageModel
from bert_flow_tf.runs.settings import PretrainingSettings
from bert_flow_tf.training.pretrain import compiled_model
from glow.optimizer import decays
from tests.refusals import user_error

HEAD = {
    "transform/dense/kernel": ("head_kernel", "transform.dense.weight"),
    "transform/dense/bias": ("head_bias", "transform.dense.bias"),
    "transform/LayerNorm/gamma": ("head_gamma", "transform.LayerNorm.weight"),
    "transform/LayerNorm/beta": ("head_beta", "transform.LayerNorm.bias"),
    "output_bias/bias": ("head_output_bias", "bias"),
}


@pytest.fixture(scope="module")
def golden(golden_dir):
    with np.load(golden_dir / "mlm_step.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def model(tiny_source, golden):
    model = compiled_model(tiny_source, PretrainingSettings(steps=200, max_seq_length=12))
    for name, (key, _) in HEAD.items():
        model.head_variables[f"cls/predictions/{name}"].assign(golden[key])
    return model


def test_loss_and_gradients_are_those_of_transformers(model, golden, golden_dir):
    ids, mask = (tf.constant(golden[f"{name}_0"], tf.int32) for name in ("ids", "mask"))
    inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": tf.zeros_like(ids)}
    loss, gradients = tf.function(model.loss_and_gradients)(inputs, tf.constant(golden["labels_0"], tf.int32))
    assert float(loss) == pytest.approx(float(golden["loss"]), abs=1e-5)
    found = {
        v.name.removesuffix(":0"): tf.convert_to_tensor(gradient).numpy()
        for v, gradient in zip(model.learned_variables, gradients, strict=True)
    }
    layers = read_tf1_config(golden_dir / "bert_tiny" / "bert_config.json").num_hidden_layers
    expected = {f"cls/predictions/{ours}": f"cls.predictions.{theirs}" for ours, (_, theirs) in HEAD.items()}
    expected |= {
        keras_name: f"bert.{hugging_face_name(tf1_name)}"
        for tf1_name, keras_name in keras_names(layers).items()
        if "pooler" not in tf1_name
    }
    assert found.keys() == expected.keys()
    tf1_names = {keras_name: tf1_name for tf1_name, keras_name in keras_names(layers).items()}
    for name, theirs in expected.items():
        gradient = to_tf1_shape(tf1_names.get(name, name), found[name])
        other = golden[f"gradient {theirs}"]
        other = other.T if name.endswith("/kernel") else other
        np.testing.assert_allclose(gradient, other, rtol=0, atol=1e-5, err_msg=name)


def test_the_heads_norm_and_biases_do_not_decay(model):
    assert [name for name in model.head_variables if decays(name)] == ["cls/predictions/transform/dense/kernel"]


def test_a_batch_without_a_predicted_piece_has_no_loss(model):
    ids = tf.ones([2, 4], tf.int32)
    inputs = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": tf.zeros_like(ids)}
    loss, gradients = model.loss_and_gradients(inputs, tf.fill([2, 4], NOT_PREDICTED))
    assert float(loss) == 0.0 and float(tf.linalg.global_norm(gradients)) == 0.0


def test_word_embeddings_must_be_of_float32():
    half = {"word_embeddings/embeddings": tf.Variable(tf.ones([11, 4], tf.bfloat16))}
    source = types.SimpleNamespace(bert_hub="half")
    with user_error("half: "):
        MaskedLanguageModel(types.SimpleNamespace(variables_by_name=half, source=source), activation=None)
