"""Loss and gradients of masked language modelling are those of transformers' `BertForMaskedLM`."""

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.convert.hugging_face import hugging_face_name
from bert_flow_tf.training.masked_lm import NOT_PREDICTED
from bert_flow_tf.training.pretrain import compiled_model
from bert_flow_tf.training.settings import PretrainSettings
from glow.optimizer import decays

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
    model = compiled_model(tiny_source, PretrainSettings(steps=200, max_seq_length=12))
    for name, (key, _) in HEAD.items():
        model.head_variables[f"cls/predictions/{name}"].assign(golden[key])
    return model


def test_loss_and_gradients_are_those_of_transformers(model, golden):
    ids, mask = (tf.constant(golden[f"{name}_0"], tf.int32) for name in ("ids", "mask"))
    inputs = {"input_word_ids": ids, "input_mask": mask, "input_type_ids": tf.zeros_like(ids)}
    loss, gradients = tf.function(model.loss_and_gradients)(
        inputs, tf.constant(golden["labels_0"], tf.int32)
    )
    assert float(loss) == pytest.approx(float(golden["loss"]), abs=1e-5)
    found = {
        v.name.removesuffix(":0"): tf.convert_to_tensor(gradient).numpy()
        for v, gradient in zip(model.learned_variables, gradients, strict=True)
    }
    expected = {
        f"cls/predictions/{ours}": f"cls.predictions.{theirs}" for ours, (_, theirs) in HEAD.items()
    }
    names = [name for name in model.encoder.variables_by_name if "pooler" not in name]
    expected |= {name: f"bert.{hugging_face_name(name)}" for name in names}
    assert found.keys() == expected.keys()
    for name, theirs in expected.items():
        other = golden[f"gradient {theirs}"]
        other = other.T if name.endswith("/kernel") else other
        np.testing.assert_allclose(found[name], other, rtol=0, atol=1e-5, err_msg=name)


def test_the_heads_norm_and_biases_do_not_decay(model):
    assert [name for name in model.head_variables if decays(name)] == [
        "cls/predictions/transform/dense/kernel"
    ]


def test_a_batch_without_a_predicted_piece_has_no_loss(model):
    ids = tf.ones([2, 4], tf.int32)
    inputs = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": tf.zeros_like(ids)}
    loss, gradients = model.loss_and_gradients(inputs, tf.fill([2, 4], NOT_PREDICTED))
    assert float(loss) == 0.0 and float(tf.linalg.global_norm(gradients)) == 0.0
