"""Hugging Face folders: the same numbers as the model's equations, and every tensor checked."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy
import scipy.special
import tensorflow as tf
import tensorflow_hub as hub
import tf_keras

from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_folder
from bert_flow_tf.encoder.convert.hugging_face import (
    read_hugging_face,
    read_hugging_face_config,
    read_hugging_face_weights,
)
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.checkpoints import Checkpoint
from tests.refusals import user_error

IDS = np.array([[2, 6, 7, 8, 3], [2, 9, 3, 0, 0]])
MASK = (IDS != 0).astype(np.int32)


@pytest.fixture(scope="module")
def tensors(small_hugging_face_dir):
    return safetensors.numpy.load_file(small_hugging_face_dir / "model.safetensors")


@pytest.fixture(scope="module")
def config(small_hugging_face_dir):
    return read_hugging_face_config(small_hugging_face_dir / "config.json")[0]


def bert_layer(tensors):
    """Output of the one layer for IDS, by the equations of a BERT with two heads and the exact gelu, in float64."""

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * tensors[f"bert.{name}.LayerNorm.weight"] + tensors[f"bert.{name}.LayerNorm.bias"]

    def dense(x, name):
        return x @ tensors[f"bert.encoder.layer.0.{name}.weight"].T + tensors[f"bert.encoder.layer.0.{name}.bias"]

    words, positions, types = (
        tensors[f"bert.embeddings.{kind}_embeddings.weight"].astype(np.float64)
        for kind in ("word", "position", "token_type")
    )
    x = norm(words[IDS] + positions[: IDS.shape[1]] + types[0], "embeddings")
    query, key, value = (
        dense(x, f"attention.self.{part}").reshape(2, 5, 2, 4).swapaxes(1, 2) for part in ("query", "key", "value")
    )
    scores = query @ key.swapaxes(2, 3) / np.sqrt(4) + np.where(MASK, 0, -1e9)[:, np.newaxis, np.newaxis]
    context = (scipy.special.softmax(scores, axis=-1) @ value).swapaxes(1, 2).reshape(2, 5, 8)
    x = norm(x + dense(context, "attention.output.dense"), "encoder.layer.0.attention.output")
    inner = dense(x, "intermediate.dense")
    inner = inner * scipy.special.ndtr(inner)
    return norm(x + dense(inner, "output.dense"), "encoder.layer.0.output")


def test_outputs_are_those_of_the_equations_with_the_exact_gelu(small_encoder_dir, tensors):
    inputs = {
        "input_word_ids": tf.constant(IDS, tf.int32),
        "input_mask": tf.constant(MASK),
        "input_type_ids": tf.zeros([2, 5], tf.int32),
    }
    outputs = hub.KerasLayer(str(small_encoder_dir / "encoder"))(inputs)
    expected = bert_layer(tensors)
    np.testing.assert_allclose(outputs["encoder_outputs"][0][0], expected[0], atol=1e-5)
    np.testing.assert_allclose(outputs["encoder_outputs"][0][1, :3], expected[1, :3], atol=1e-5)
    pooled = np.tanh(expected[:, 0] @ tensors["bert.pooler.dense.weight"].T + tensors["bert.pooler.dense.bias"])
    np.testing.assert_allclose(outputs["pooled_output"], pooled, atol=1e-5)


def test_two_conversions_write_the_same_numbers_under_the_same_names(
    small_hugging_face_dir, small_encoder_dir, tmp_path
):
    def variables(folder):
        checkpoint = Checkpoint(folder / "encoder" / "variables" / "variables")
        # Which counts the layers that this process made.
        return checkpoint.read(sorted(checkpoint.shapes.keys() - {"_CHECKPOINTABLE_OBJECT_GRAPH"}))

    tf_keras.utils.set_random_seed(7)
    again = variables(write_encoder_folder(tmp_path / "encoder", read_hugging_face(small_hugging_face_dir)))
    np.testing.assert_equal(again, variables(small_encoder_dir))


def save(path, tensors):
    safetensors.numpy.save_file(tensors, path)


def test_names_without_prefix_old_names_known_extras_and_half_precision_are_taken(tensors, config, tmp_path):
    renamed = {name.removeprefix("bert."): value for name, value in tensors.items()}
    renamed["embeddings.LayerNorm.gamma"] = renamed.pop("embeddings.LayerNorm.weight")
    renamed["embeddings.position_ids"] = np.arange(10)
    renamed["cls.predictions.bias"] = np.zeros(11, np.float32)
    renamed["pooler.dense.bias"] = tensors["bert.pooler.dense.bias"].astype(np.float16)
    save(tmp_path / "model.safetensors", renamed)
    weights = read_hugging_face_weights(tmp_path, config)
    np.testing.assert_array_equal(
        weights["bert/embeddings/LayerNorm/gamma"], tensors["bert.embeddings.LayerNorm.weight"]
    )
    kernel = tensors["bert.encoder.layer.0.intermediate.dense.weight"].T
    np.testing.assert_array_equal(weights["bert/encoder/layer_0/intermediate/dense/kernel"], kernel)
    assert {value.dtype for value in weights.values()} == {np.dtype(np.float32)}


def test_a_missing_tensor_is_named(tensors, config, tmp_path):
    name = "bert.pooler.dense.weight"
    save(tmp_path / "model.safetensors", {key: value for key, value in tensors.items() if key != name})
    with user_error("variable pooler.dense.weight: missing"):
        read_hugging_face_weights(tmp_path, config)


def test_file_that_is_no_safetensors_and_missing_file_are_named(config, tmp_path):
    path = tmp_path / "model.safetensors"
    with user_error("model.safetensors: missing"):
        read_hugging_face_weights(tmp_path, config)
    path.write_bytes(b"\x80\x04pickle")
    with user_error("model.safetensors: cannot be read as a safetensors file"):
        read_hugging_face_weights(tmp_path, config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "roberta"}, r"model_type: found roberta, expected bert or distilbert$"),
        (
            {"position_embedding_type": "relative_key"},
            r"'relative_key' - at .*position_embedding_type",
        ),
    ],
)
def test_other_architectures_are_refused(small_hugging_face_dir, tmp_path, change, message):
    shutil.copy(small_hugging_face_dir / "config.json", tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(fields | change))
    with pytest.raises(UserError, match=message):
        read_hugging_face_config(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"normalizer": {"type": "BertNormalizer", "strip_accents": True, "lowercase": False}},
            "with strip_accents True",
        ),
        ({"normalizer": {"type": "Lowercase"}}, "found Lowercase with"),
    ],
)
def test_a_tokenizer_that_is_not_berts_is_refused(golden_dir, tmp_path, change, message):
    folder = tmp_path / "model"
    shutil.copytree(golden_dir / "transformers" / "distilbert", folder)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with user_error(message):
        read_hugging_face(folder)


def test_a_missing_vocabulary_is_named(golden_dir, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(golden_dir / "transformers" / "distilbert", folder)
    (folder / "tokenizer.json").unlink()
    with user_error("vocab.txt: no such file"):
        read_hugging_face(folder)


def test_a_shard_that_is_missing_is_named(golden_dir, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(golden_dir / "transformers" / "bert_masked_lm_sharded", folder)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with user_error(" more: missing"):
        read_hugging_face(folder)
