"""From a Hugging Face BERT folder to an encoder folder. Weights come from safetensors only: nothing is unpickled."""

import dataclasses
import json
import pathlib
import re

import numpy as np
import safetensors

from bert_flow_tf.convert.bert_config import read_hugging_face_config
from bert_flow_tf.convert.digest import file_digest
from bert_flow_tf.convert.encoder_folder import write_encoder_folder
from bert_flow_tf.convert.weights import check_variables, variable_shapes
from bert_flow_tf.errors import UserError

# Heads of pre-training, and a constant that older versions save beside the weights.
_KNOWN_EXTRAS = re.compile(r"^(cls\..*|(bert\.)?embeddings\.position_ids)$")


def convert_hugging_face(folder, out_dir, *, do_lower_case=None, hidden_act=None, overwrite=False):
    """Path of the encoder folder made from a Hugging Face folder.

    Args:
      folder: folder with `config.json`, `vocab.txt` and `model.safetensors`.
      out_dir: folder to make.
      do_lower_case: whether the vocabulary is uncased; None takes it from `tokenizer_config.json`, else by whether
        pieces have capitals.
      hidden_act: activation instead of the configuration's, such as gelu_tanh for weights that TF1 code is to be
        compared on.
      overwrite: whether an encoder folder at `out_dir` may be replaced.

    Raises:
      UserError: a file is missing, or weights, configuration and vocabulary do not fit each other.
    """
    folder = pathlib.Path(folder)
    paths = {name: folder / name for name in ("config.json", "vocab.txt", "model.safetensors")}
    config = read_hugging_face_config(paths["config.json"])
    if hidden_act:
        config = dataclasses.replace(config, hidden_act=hidden_act)
    weights = read_hugging_face_weights(paths["model.safetensors"], config)
    if do_lower_case is None:
        do_lower_case = _recorded_lower_case(folder / "tokenizer_config.json")
    return write_encoder_folder(
        out_dir,
        config=config,
        vocab_file=paths["vocab.txt"],
        weights=weights,
        do_lower_case=do_lower_case,
        source={"kind": "Hugging Face folder", "sha256": {name: file_digest(path) for name, path in paths.items()}},
        overwrite=overwrite,
    )


def hugging_face_name(tf1_name):
    """Hugging Face's name, without the prefix "bert.", of the variable that TF1 calls `tf1_name`."""
    name = tf1_name.removeprefix("bert/")
    name = re.sub(r"^encoder/layer_(\d+)/", r"encoder/layer/\1/", name)
    name = re.sub(
        r"(_embeddings|/kernel|/gamma)$",
        lambda match: {"_embeddings": "_embeddings/weight"}.get(match[0], "/weight"),
        name,
    )
    return re.sub(r"/beta$", "/bias", name).replace("/", ".")


def read_hugging_face_weights(path, config):
    """dict of TF1 name -> float32 array of the encoder's weights in a safetensors file.

    Raises:
      UserError: the file cannot be read, or a tensor is missing, left over, of another shape or of another type than
      floats.
    """
    if not pathlib.Path(path).is_file():
        raise UserError(f"{path}: no such file, expected the weights as safetensors")
    try:
        with safetensors.safe_open(str(path), framework="numpy") as stored:
            keys = [key for key in stored.keys() if not _KNOWN_EXTRAS.match(key)]  # noqa: SIM118 (not a dict)
            shapes = {key: tuple(stored.get_slice(key).get_shape()) for key in keys}
            prefix = "bert." if any(key.startswith("bert.") for key in keys) else ""
            return _read_tensors(path, stored, shapes, prefix, config)
    except safetensors.SafetensorError as error:
        raise UserError(f"{path}: not a safetensors file: {' '.join(str(error).split())}") from error


def _read_tensors(path, stored, shapes, prefix, config):
    tf1_names = {_key_in(shapes, prefix + hugging_face_name(name), name): name for name in variable_shapes(config)}
    found = {}
    for key, shape in shapes.items():
        tf1_name = tf1_names.get(key, key)
        found[tf1_name] = shape[::-1] if tf1_name.endswith("/kernel") else shape
    keys = {name: key for key, name in tf1_names.items()}
    check_variables(found, config, path, lambda name: keys.get(name, name))
    weights = {}
    for key, name in tf1_names.items():
        if stored.get_slice(key).get_dtype() not in ("F16", "F32", "F64"):
            raise UserError(f"{path}: {key} is of type {stored.get_slice(key).get_dtype()}, expected F16, F32 or F64")
        value = stored.get_tensor(key).astype(np.float32)
        weights[name] = value.T if name.endswith("/kernel") else value
    return weights


def _key_in(shapes, key, tf1_name):
    """`key`, or its spelling in files made from TF1 checkpoints, which keep gamma and beta."""
    if "/LayerNorm/" in tf1_name:
        old_key = f"{key.rpartition('.')[0]}.{tf1_name.rpartition('/')[2]}"
        if old_key in shapes:
            return old_key
    return key


def _recorded_lower_case(path):
    if not path.is_file():
        return None
    try:
        recorded = json.loads(path.read_text(encoding="utf-8")).get("do_lower_case")
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError) as error:
        raise UserError(f"{path}: not a JSON object, expected the tokenizer's settings") from error
    return recorded if isinstance(recorded, bool) else None
