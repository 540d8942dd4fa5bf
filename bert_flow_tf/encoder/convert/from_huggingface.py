"""From a Hugging Face BERT folder to an encoder folder. Weights come from safetensors only: nothing is unpickled."""

import os
import pathlib
import re
from typing import Any

import msgspec
import numpy as np
import safetensors

from bert_flow_tf.encoder.convert.bert_config import BertConfig, read_hugging_face_config
from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_folder
from bert_flow_tf.encoder.convert.weights import check_shapes, variable_shapes
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.files.json_files import read_json

# Heads of pre-training, and a constant that older versions save beside the weights.
_KNOWN_EXTRAS = re.compile(r"^(cls\..*|(bert\.)?embeddings\.position_ids)$")


def convert_hugging_face(
    folder: str | os.PathLike,
    out_dir: str | os.PathLike,
    *,
    do_lower_case: bool | None = None,
    hidden_act: str | None = None,
    overwrite: bool = False,
) -> pathlib.Path:
    """Path of the encoder folder made from a Hugging Face folder.

    Args:
      folder: folder with `config.json`, `vocab.txt` and `model.safetensors`.
      do_lower_case: whether the vocabulary is uncased; None takes it from `tokenizer_config.json`, else by whether
        pieces have capitals.
      hidden_act: activation instead of the configuration's, such as gelu_tanh to compare with TF1 code on these
        weights.

    Raises:
      UserError: a file is missing, or weights, configuration and vocabulary do not fit each other.
    """
    folder = pathlib.Path(folder)
    paths = {name: folder / name for name in ("config.json", "vocab.txt", "model.safetensors")}
    config = read_hugging_face_config(paths["config.json"])
    if hidden_act:
        config = msgspec.structs.replace(config, hidden_act=hidden_act)
    weights = read_hugging_face_weights(paths["model.safetensors"], config)
    if do_lower_case is None:
        do_lower_case = lower_cases(folder)
    return write_encoder_folder(
        out_dir,
        config=config,
        vocab_file=paths["vocab.txt"],
        weights=weights,
        do_lower_case=do_lower_case,
        source={"kind": "Hugging Face folder", "sha256": {name: file_digest(path) for name, path in paths.items()}},
        overwrite=overwrite,
    )


def lower_cases(folder: pathlib.Path) -> bool | None:
    """What `tokenizer_config.json` in the folder says of `do_lower_case`; None where it says nothing.

    Raises:
      UserError: the file cannot be read, or is not JSON.
    """
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return None
    settings = read_json(path, dict, expected="a tokenizer's settings", versioned=False)
    return settings["do_lower_case"] if isinstance(settings.get("do_lower_case"), bool) else None


def hugging_face_name(tf1_name: str) -> str:
    """Hugging Face's name, without the prefix "bert.", of the variable that TF1 calls `tf1_name`."""
    name = re.sub(r"^bert/", "", re.sub(r"/layer_(\d+)/", r"/layer/\1/", tf1_name))
    name = re.sub(r"(?<=_embeddings)$|/kernel$|/gamma$", "/weight", name)
    return re.sub(r"/beta$", "/bias", name).replace("/", ".")


def read_hugging_face_weights(path: str | os.PathLike, config: BertConfig) -> dict[str, np.ndarray]:
    """dict of TF1 name -> float32 array of the encoder's weights in a safetensors file.

    Raises:
      UserError: the file cannot be read, or a tensor is missing, unexpected, of another shape, or not of floats.
    """
    if not pathlib.Path(path).is_file():
        raise UserError(f"{path}: no such file, expected the weights as safetensors")
    try:
        with safetensors.safe_open(str(path), framework="numpy") as stored:
            keys = [key for key in stored.keys() if not _KNOWN_EXTRAS.match(key)]  # noqa: SIM118 (not a dict)
            return _read_tensors(path, {key: stored.get_slice(key) for key in keys}, config)
    except safetensors.SafetensorError as error:
        raise UserError(f"{path}: not a safetensors file: {' '.join(str(error).split())}") from error


def _read_tensors(path: str | os.PathLike, stored: dict[str, Any], config: BertConfig) -> dict[str, np.ndarray]:
    prefix = "bert." if any(key.startswith("bert.") for key in stored) else ""
    expected = variable_shapes(config)
    keys = {name: _key_in(stored, prefix + hugging_face_name(name), name) for name in expected}
    tf1_names = {key: name for name, key in keys.items()}
    shapes = {}
    for key, tensor in stored.items():
        name = tf1_names.get(key, key)
        # Hugging Face's kernels are [out, in].
        shapes[name] = tensor.get_shape()[:: -1 if name.endswith("/kernel") else 1]
    check_shapes(shapes, expected, path, "this configuration", lambda name: keys.get(name, name))
    weights = {}
    for name, key in keys.items():
        if stored[key].get_dtype() not in ("F16", "F32", "F64"):
            raise UserError(f"{path}: {key} is of type {stored[key].get_dtype()}, expected F16, F32 or F64")
        value = stored[key][...].astype(np.float32)
        weights[name] = value.T if name.endswith("/kernel") else value
    return weights


def _key_in(stored: dict[str, Any], key: str, tf1_name: str) -> str:
    """`key`, or its spelling in files made from TF1 checkpoints, which keep gamma and beta."""
    if "/LayerNorm/" in tf1_name:
        old_key = f"{key.rpartition('.')[0]}.{tf1_name.rpartition('/')[2]}"
        if old_key in stored:
            return old_key
    return key
