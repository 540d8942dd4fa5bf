"""Hugging Face folders of older versions, and mistakes in folders."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from bert_flow_tf.encoder.convert.hugging_face import (
    read_hugging_face,
    read_hugging_face_config,
    read_hugging_face_weights,
)
from tests.refusals import user_error


@pytest.fixture(scope="module")
def tensors(small_hugging_face_dir):
    return safetensors.numpy.load_file(small_hugging_face_dir / "model.safetensors")


def test_old_names_extras_and_half_precision_are_read(tensors, small_hugging_face_dir, tmp_path):
    renamed = {name.removeprefix("bert."): value for name, value in tensors.items()}
    renamed["embeddings.LayerNorm.gamma"] = renamed.pop("embeddings.LayerNorm.weight")
    renamed["embeddings.position_ids"] = np.arange(10)
    renamed["cls.predictions.bias"] = np.zeros(11, np.float32)
    renamed["pooler.dense.bias"] = tensors["bert.pooler.dense.bias"].astype(np.float16)
    safetensors.numpy.save_file(renamed, tmp_path / "model.safetensors")
    config, _ = read_hugging_face_config(small_hugging_face_dir / "config.json")
    weights = read_hugging_face_weights(tmp_path, config)
    gamma = tensors["bert.embeddings.LayerNorm.weight"]
    np.testing.assert_array_equal(weights["bert/embeddings/LayerNorm/gamma"], gamma)
    kernel = tensors["bert.encoder.layer.0.intermediate.dense.weight"].T
    np.testing.assert_array_equal(weights["bert/encoder/layer_0/intermediate/dense/kernel"], kernel)
    assert {value.dtype for value in weights.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("model", "name", "content", "parts"),
    [
        ("bert", "model.safetensors", None, ["model.safetensors: missing"]),
        ("bert", "model.safetensors", b"\x80\x04pickle", ["model.safetensors: cannot be read"]),
        ("bert", "config.json", {"num_hidden_layers": 3}, ["variable encoder.layer.2.", "missing"]),
        (
            "bert",
            "config.json",
            {"model_type": "roberta"},
            ["model_type: found roberta", "bert or distilbert"],
        ),
        ("bert", "config.json", {"position_embedding_type": "relative_key"}, ["'relative_key'"]),
        ("distilbert", "tokenizer.json", None, ["vocab.txt: no such file"]),
        ("bert_masked_lm_sharded", "model-00002-of-00003.safetensors", None, ["missing"]),
    ],
)
def test_a_folder_that_does_not_fit_is_named(golden_dir, tmp_path, model, name, content, parts):
    folder = shutil.copytree(golden_dir / "transformers" / model, tmp_path / "model")
    if content is None:
        (folder / name).unlink()
    else:
        changed = (
            content
            if isinstance(content, bytes)
            else json.loads((folder / name).read_text()) | content
        )
        (folder / name).write_bytes(
            changed if isinstance(changed, bytes) else json.dumps(changed).encode()
        )
    with user_error(str(folder), *parts):
        read_hugging_face(folder)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", '{"model_type": []}'),
        ("config.json", '{"model_type": "bert", "max_position_embeddings": "x"}'),
        ("tokenizer_config.json", '{"do_lower_case": "x"}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": [1]}'),
        ("tokenizer_config.json", '{"tokenizer_class": 3}'),
        ("tokenizer.json", '{"model": 1}'),
        ("tokenizer.json", '{"normalizer": "x"}'),
        ("modules.json", '[{"path": 0, "type": "a.Transformer"}]'),
        ("modules.json", '{"type": 1}'),
    ],
)
def test_values_of_other_types_are_one_line(small_hugging_face_dir, tmp_path, name, content):
    folder = shutil.copytree(small_hugging_face_dir, tmp_path / "bert")
    (folder / name).write_text(content)
    with user_error(f"{folder / name}: "):
        read_hugging_face(folder)
