"""TF1 checkpoints: every variable checked by name and shape."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.convert.from_checkpoint import read_tf1
from bert_flow_tf.encoder.convert.weights import read_tf1_config
from bert_flow_tf.errors import UserError


@pytest.fixture(scope="module")
def arrays(golden_dir):
    reader = tf.train.load_checkpoint(str(golden_dir / "bert_tiny" / "bert_model.ckpt"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.fixture(scope="module")
def weights_of(golden_dir):
    """Function (prefix) that reads a checkpoint with the tiny BERT's configuration and vocabulary."""
    config_file, vocab_file = (golden_dir / "bert_tiny" / name for name in ("bert_config.json", "vocab.txt"))
    return lambda prefix: read_tf1(prefix, config_file, vocab_file).weights


def test_variables_of_other_parts_of_a_training_checkpoint_are_left_out(
    arrays, weights_of, write_tf1_checkpoint, tmp_path
):
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
    weights = weights_of(tmp_path / "model.ckpt-7")
    assert weights.keys() == arrays.keys()
    np.testing.assert_array_equal(weights[word], arrays[word])


KERNEL = "bert/encoder/layer_1/output/dense/kernel"


@pytest.mark.differs("A partial")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.pop(KERNEL), rf"model.ckpt: variable {KERNEL}: missing"),
        (
            lambda a: a.update({"bert/encoder/layer_3/output/dense/kernel": a[KERNEL]}),
            r"model.ckpt: variable bert/encoder/layer_3/output/dense/kernel: unexpected",
        ),
        (
            lambda a: a.update({KERNEL: a[KERNEL].T}),
            rf"variable {KERNEL}: found shape \[32, 64\], expected \[64, 32\]",
        ),
    ],
)
def test_variable_that_does_not_fit_is_named(arrays, weights_of, write_tf1_checkpoint, tmp_path, change, message):
    changed = dict(arrays)
    change(changed)
    write_tf1_checkpoint(tmp_path / "model.ckpt", changed)
    with pytest.raises(UserError, match=message):
        weights_of(tmp_path / "model.ckpt")


def test_weights_that_are_not_finite_are_refused(arrays, write_tf1_checkpoint, golden_dir, tmp_path):
    bias = "bert/pooler/dense/bias"
    write_tf1_checkpoint(tmp_path / "bert_model.ckpt", arrays | {bias: np.full_like(arrays[bias], np.nan)})
    for name in ("bert_config.json", "vocab.txt"):
        shutil.copy(golden_dir / "bert_tiny" / name, tmp_path)
    with pytest.raises(UserError, match=f"variable {bias} holds NaN"):
        read_tf1(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "swiglu"}, r"'swiglu' - at .*hidden_act"),
        ({"hidden_size": "32"}, r"got .str. - at .*hidden_size"),
        ({"num_hidden_layers": 0}, r"num_hidden_layers"),
        ({"hidden_dropout_prob": 1.5}, r"hidden_dropout_prob"),
        ({"layer_norm_eps": 1e-5}, r"1e-12`? - at .*layer_norm_eps"),
    ],
)
def test_configuration_that_cannot_be_built_is_named(golden_dir, tmp_path, change, message):
    fields = json.loads((golden_dir / "bert_tiny" / "bert_config.json").read_text())
    (tmp_path / "bert_config.json").write_text(json.dumps(fields | change))
    with pytest.raises(UserError, match=r"bert_config.json: .*" + message):
        read_tf1_config(tmp_path / "bert_config.json")
