"""TF1 checkpoints: every variable checked by name and shape."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.convert.bert_config import read_tf1_config
from bert_flow_tf.convert.from_tf1 import checkpoint_prefix, convert_tf1, read_tf1_weights
from bert_flow_tf.errors import UserError


@pytest.fixture(scope="module")
def arrays(golden_dir):
    reader = tf.train.load_checkpoint(str(golden_dir / "bert_tiny" / "bert_model.ckpt"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.fixture(scope="module")
def config(golden_dir):
    return read_tf1_config(golden_dir / "bert_tiny" / "bert_config.json")


def test_variables_of_other_parts_of_a_training_checkpoint_are_left_out(arrays, config, write_tf1_checkpoint, tmp_path):
    word = "bert/embeddings/word_embeddings"
    extras = {
        "cls/predictions/output_bias": np.zeros(64, np.float32),
        "bert/flow/revnet_0/b": np.zeros(3, np.float32),
        "loss/output_weights": np.zeros([3, 96], np.float32),
        f"{word}/adam_m": np.zeros([64, 32], np.float32),
        f"{word}/adam_v": np.zeros([64, 32], np.float32),
        "global_step": np.int64(7),
    }
    write_tf1_checkpoint(tmp_path / "model.ckpt-7", arrays | extras)
    weights = read_tf1_weights(tmp_path / "model.ckpt-7", config)
    assert weights.keys() == arrays.keys()
    np.testing.assert_array_equal(weights[word], arrays[word])


def broken(arrays, change):
    kernel = "bert/encoder/layer_1/output/dense/kernel"
    return {
        "missing": {name: value for name, value in arrays.items() if name != kernel},
        "left over": arrays | {"bert/encoder/layer_3/output/dense/kernel": arrays[kernel]},
        "shape": arrays | {kernel: arrays[kernel].T},
    }[change]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("missing", r"model.ckpt: 1 variable missing: bert/encoder/layer_1/output/dense/kernel, expected 55 variables"),
        ("left over", r"model.ckpt: 1 variable left over: bert/encoder/layer_3/output/dense/kernel"),
        ("shape", r"variable bert/encoder/layer_1/output/dense/kernel has shape \[32, 64\], .* \[64, 32\]"),
    ],
)
def test_variable_that_does_not_fit_is_named(arrays, config, write_tf1_checkpoint, tmp_path, change, message):
    write_tf1_checkpoint(tmp_path / "model.ckpt", broken(arrays, change))
    with pytest.raises(UserError, match=message):
        read_tf1_weights(tmp_path / "model.ckpt", config)


def test_weights_that_are_not_finite_are_refused(arrays, write_tf1_checkpoint, golden_dir, tmp_path):
    bias = "bert/pooler/dense/bias"
    write_tf1_checkpoint(tmp_path / "bert_model.ckpt", arrays | {bias: np.full_like(arrays[bias], np.nan)})
    for name in ("bert_config.json", "vocab.txt"):
        shutil.copy(golden_dir / "bert_tiny" / name, tmp_path)
    with pytest.raises(UserError, match=f"variable {bias} holds NaN"):
        convert_tf1(tmp_path, tmp_path / "out")


def test_truncated_data_file_is_refused(golden_dir, config, tmp_path):
    folder = shutil.copytree(golden_dir / "bert_tiny", tmp_path / "bert")
    data = folder / "bert_model.ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"bert_model.ckpt: checkpoint cannot be read"):
        read_tf1_weights(folder / "bert_model.ckpt", config)


def test_folder_of_one_checkpoint_by_another_name_is_taken_and_of_two_refused(tmp_path):
    (tmp_path / "model.ckpt-5.index").touch()
    assert checkpoint_prefix(tmp_path) == tmp_path / "model.ckpt-5"
    (tmp_path / "model.ckpt-6.index").touch()
    with pytest.raises(UserError, match=r"found model.ckpt-5, model.ckpt-6, expected bert_model.ckpt.index"):
        checkpoint_prefix(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "swiglu"}, r"hidden_act is 'swiglu', expected one of"),
        ({"hidden_size": "32"}, r"hidden_size is '32', expected int"),
        ({"num_attention_heads": 5}, r"hidden_size 32 is not a multiple of num_attention_heads 5"),
        ({"vocab_size": None}, r"no vocab_size"),
        ({"num_hidden_layers": 0}, r"num_hidden_layers is 0, expected 1 or more"),
        ({"hidden_dropout_prob": 1.5}, r"hidden_dropout_prob is 1.5"),
        ({"layer_norm_eps": 1e-5}, r"layer_norm_eps is 1e-05, expected 1e-12"),
    ],
)
def test_configuration_that_cannot_be_built_is_named(golden_dir, tmp_path, change, message):
    fields = json.loads((golden_dir / "bert_tiny" / "bert_config.json").read_text())
    (tmp_path / "bert_config.json").write_text(json.dumps(fields | change))
    with pytest.raises(UserError, match=r"bert_config.json: " + message):
        read_tf1_config(tmp_path / "bert_config.json")


def test_configuration_that_is_no_json_is_named_with_its_line(tmp_path):
    (tmp_path / "bert_config.json").write_text('{"vocab_size": 3,\n}')
    with pytest.raises(UserError, match=r"bert_config.json, line 2"):
        read_tf1_config(tmp_path / "bert_config.json")
