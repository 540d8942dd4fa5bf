"""TF1 checkpoints: every variable checked by name, shape and value."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.convert.from_checkpoint import read_tf1
from bert_flow_tf.encoder.weights import check_weights, read_bert_config
from tests.refusals import user_error

KERNEL = "bert/encoder/layer_1/output/dense/kernel"


@pytest.mark.differs("A partial")
def test_other_parts_of_a_training_checkpoint_are_left_out(
    golden_dir, write_tf1_checkpoint, tmp_path
):
    config_file, vocab_file = (
        golden_dir / "bert_tiny" / name for name in ("bert_config.json", "vocab.txt")
    )
    reader = tf.train.load_checkpoint(str(golden_dir / "bert_tiny" / "bert_model.ckpt"))
    arrays = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    word = "bert/embeddings/word_embeddings"
    extras = {
        "cls/predictions/output_bias": np.zeros(64, np.float32),
        f"{word}/adam_m": np.zeros([64, 32], np.float32),
        f"{word}/AdamWeightDecayOptimizer_1": np.zeros([64, 32], np.float32),
        f"{word}/LAMB_2": np.zeros([64, 32], np.float32),
        "loss_scale": np.float32(1),
        "global_step": np.int64(7),
    }
    write_tf1_checkpoint(tmp_path / "model.ckpt-7", arrays | extras)
    weights = read_tf1(tmp_path / "model.ckpt-7.index", config_file, vocab_file).weights
    assert weights.keys() == arrays.keys()
    np.testing.assert_array_equal(weights[word], arrays[word])
    del arrays[KERNEL]
    write_tf1_checkpoint(tmp_path / "model.ckpt-7", arrays)
    with user_error(f"{tmp_path / 'model.ckpt-7'}: variable {KERNEL}: missing"):
        read_tf1(tmp_path / "model.ckpt-7", config_file, vocab_file)


@pytest.mark.parametrize(
    ("arrays", "found"),
    [
        ({"a": np.ones([2, 3])}, "variable b: missing"),
        ({"a": np.ones([2, 3]), "b": np.ones(1), "c": np.ones(1)}, "variable c: unexpected"),
        (
            {"a": np.ones([3, 2]), "b": np.ones(1)},
            "variable a: found shape [3, 2], expected [2, 3]",
        ),
        ({"a": np.ones([2, 3]), "b": np.array([np.nan])}, "variable b: found NaN"),
    ],
)
def test_an_array_that_does_not_fit_is_named(arrays, found):
    with user_error(f"file: {found}"):
        check_weights(arrays, {"a": (2, 3), "b": (1,)}, "file", "this configuration")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"hidden_act": "swiglu"}, "'swiglu'"),
        ({"hidden_size": "32"}, "str"),
        ({"num_hidden_layers": 0}, ">= 1"),
        ({"num_hidden_layers": 100_000_000}, "<= 256"),
        ({"hidden_dropout_prob": 1.5}, "< 1"),
        ({"layer_norm_eps": 1e-5}, "1e-12"),
    ],
)
def test_a_configuration_that_cannot_be_built_is_named(golden_dir, tmp_path, change, found):
    fields = json.loads((golden_dir / "bert_tiny" / "bert_config.json").read_text())
    (tmp_path / "bert_config.json").write_text(json.dumps(fields | change))
    with user_error("bert_config.json: ", *change, found):
        read_bert_config(tmp_path / "bert_config.json")
