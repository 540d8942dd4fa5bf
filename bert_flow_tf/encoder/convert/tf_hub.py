"""Read an encoder and its preprocess model from TF-Hub's format."""

import hashlib
import itertools
import os
import pathlib
import re
from typing import Any, get_args

import msgspec
import numpy as np
import tensorflow as tf
from absl import flags, logging

from bert_flow_tf.encoder.bert import Bert, Outputs, Variables
from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.encoder.saved_model_encoder import Program
from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS, has_capitals, read_vocabulary
from bert_flow_tf.encoder.weights import (
    WORD_EMBEDDINGS,
    Activation,
    BertConfig,
    EncoderRecord,
    Pretrained,
    check_arrays,
    variable_shapes,
)
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.atomic import check_writable
from bert_flow_tf.files.reading import AnyPath, file_digest, reading
from bert_flow_tf.files.user_cache import cache_root, print_download
from bert_flow_tf.runs.record import EncoderFiles

# This tolerance is relative to the largest output. Rounding in six layers is below 1e-6; a wrong GELU differs by 2e-4.
_LARGEST_DEVIATION = 2e-5
# The values are tf-models' names for TF1's.
_KERAS_NAMES = {
    "embeddings/word_embeddings": "word_embeddings/embeddings",
    "embeddings/position_embeddings": "position_embedding/embeddings",
    "embeddings/token_type_embeddings": "type_embeddings/embeddings",
    "embeddings/LayerNorm": "embeddings/layer_norm",
    "pooler/dense": "pooler_transform",
    "attention/self": "self_attention",
    "attention/output/dense": "self_attention/attention_output",
    "attention/output/LayerNorm": "self_attention_layer_norm",
    "intermediate/dense": "intermediate",
    "output/dense": "output",
    "output/LayerNorm": "output_layer_norm",
}
_TABLES = tuple(itertools.islice(_KERAS_NAMES.values(), 3))


def read_tf_hub(
    encoder_dir: pathlib.Path, preprocess_dir: pathlib.Path, name: str, recorded: EncoderFiles | None = None
) -> Pretrained | Program:
    """Read a BERT's variables, vocabulary and case, or another `Program`.

    The SavedModel runs once, on `_probe_inputs`, and the activation is the one that gives its outputs. The dropout
    rates are BERT's, 0.1.

    Args:
      name: the encoder in errors.
      recorded: a run's record; a SavedModel with other files is not loaded.
    """
    # tensorflow_hub takes a second to import.
    import tensorflow_hub as hub

    vocab, digest = read_vocabulary(vocabulary_asset(preprocess_dir)), _files_digest(encoder_dir)

    def program(lower: bool, num_layers: int = 0, width: int = 0) -> Program:
        record = EncoderRecord(kind="TF-Hub", do_lower_case=lower)
        return Program(encoder_dir, preprocess_dir, vocab, record, digest, num_layers, width)

    if recorded is not None and digest != recorded.files_digest:
        found = [program(lower).fingerprint for lower in (False, True)]
        if recorded.fingerprint not in found:
            expected = f"expected {recorded.fingerprint}, as recorded"
            raise UserError(f"{name}: fingerprint: found {' or '.join(found)}, {expected}")
    with reading(name, "an encoder"):
        loaded = hub.load(str(encoder_dir))
    variables = {v.name.removesuffix(":0"): v for v in loaded.variables if v.dtype.is_floating}
    inputs = _probe_inputs(variables)
    # Compare on the CPU, because a GPU rounds products differently.
    with tf.device("/CPU:0"):
        with reading(name, f"TF-Hub's BERT, version 3 or later, which takes {', '.join(TOKEN_INPUTS)}"):
            outputs = hub.KerasLayer(loaded)(inputs, training=False)
            outputs = {key: outputs[key] for key in ("sequence_output", "pooled_output", "encoder_outputs")}
        bert = _equal_bert(variables, inputs, outputs)
    rows = next((v.shape[0] for key, v in variables.items() if _TABLES[0] in key), len(vocab))
    if len(vocab) > rows:
        expected = f"expected at most {rows}, the word embeddings of {name}"
        raise UserError(f"{preprocess_dir}: found {len(vocab)} word pieces, {expected}")
    case = getattr(loaded, "do_lower_case", None)
    lower = not has_capitals(vocab) if case is None else bool(case.numpy())
    if bert is None:
        logging.info("%s is not a BERT of tf-models, so its SavedModel runs", name)
        return program(lower, len(outputs["encoder_outputs"]), outputs["sequence_output"].shape[-1])
    weights: dict[str, np.ndarray] = {key: variable.numpy() for key, variable in bert.variables.items()}
    check_arrays(weights, variable_shapes(bert.config), name, "a BERT")
    # The unused rows of some tables would give another fingerprint.
    weights[WORD_EMBEDDINGS] = weights[WORD_EMBEDDINGS][: len(vocab)]
    config = msgspec.structs.replace(bert.config, vocab_size=len(vocab))
    return Pretrained(config, vocab, weights, EncoderRecord(kind="TF-Hub", do_lower_case=lower), digest)


def find_saved_model(
    handle: str, part: str, argument: str, cache_dir: AnyPath | None = None
) -> tuple[str, pathlib.Path]:
    """Return a handle or absolute path, and the folder of its SavedModel.

    Args:
      part: name of the SavedModel in a folder that holds an encoder and its preprocess model.
      argument: name of the argument in errors.
    """
    check_handle(handle, argument)
    folder = pathlib.Path(handle)
    if folder.is_dir():
        handle = str(folder.resolve())
    if (folder / part / "saved_model.pb").is_file():
        return handle, folder / part
    import tensorflow_hub as hub
    from tensorflow_hub.resolver import tfhub_cache_dir

    # TensorFlow Hub's default cache in /tmp may belong to another user. TFHUB_CACHE_DIR overrides this flag.
    flags.FLAGS.set_default("tfhub_cache_dir", str(cache_root(cache_dir) / "tfhub"))
    try:
        cached = pathlib.Path(tfhub_cache_dir() or "", hashlib.sha1(handle.encode()).hexdigest())
        if "://" in handle and not cached.exists():
            # TensorFlow Hub would retry forever to write its lock.
            check_writable(cached)
            print_download(handle, None, cached)
        with reading(handle, "a SavedModel that can be reached, or a local copy"):
            path = pathlib.Path(hub.resolve(handle))
    except UserError as error:
        raise ArgumentError(f"{argument}={error}") from error
    if not (path / "saved_model.pb").is_file():
        raise ArgumentError(f"{argument}={handle}: found no saved_model.pb in {path}, expected an encoder's folder")
    return handle, path


def vocabulary_asset(preprocess_dir: str | os.PathLike) -> pathlib.Path:
    files = sorted(path for path in (pathlib.Path(preprocess_dir) / "assets").glob("*") if path.is_file())
    if len(files) != 1:
        raise UserError(f"{preprocess_dir}: found {len(files)} assets, expected only the vocabulary file")
    return files[0]


def keras_name(tf1_name: str) -> str:
    """Return tf-models' name of a variable: `transformer/layer_0/output/kernel`."""
    name = tf1_name.removeprefix("bert/").replace("encoder/layer_", "transformer/layer_")
    return re.sub("|".join(_KERAS_NAMES), lambda match: _KERAS_NAMES[match[0]], name)


def _files_digest(encoder_dir: pathlib.Path) -> str:
    paths = [encoder_dir / "saved_model.pb", *sorted((encoder_dir / "variables").glob("*"))]
    return hashlib.sha256("\n".join(map(file_digest, paths)).encode()).hexdigest()


def _probe_inputs(variables: Variables) -> dict[str, tf.Tensor]:
    """Return inputs [2, seq] with many ids, all types and some padding."""

    def table_rows(name: str, default: int) -> int:
        return next((v.shape[0] for key, v in variables.items() if name in key), default)

    length = min(table_rows(_TABLES[1], 16), 16)
    positions = tf.range(2 * length)
    inputs = {
        # A prime factor spreads the ids over the vocabulary.
        "input_word_ids": positions * 7919 % table_rows(_TABLES[0], 2),
        "input_mask": tf.cast(positions < length + length // 2, tf.int32),
        "input_type_ids": positions % table_rows(_TABLES[2], 1),
    }
    return {name: tf.reshape(value, [2, length]) for name, value in inputs.items()}


def _equal_bert(variables: Variables, inputs: dict[str, tf.Tensor], expected: Outputs) -> Bert | None:
    """Return a `Bert` that gives the SavedModel's outputs; None if none does."""
    if not {*_TABLES, "transformer/layer_0/self_attention/query/kernel"} <= variables.keys():
        return None
    (pieces, width), (positions, _), (types, _) = (variables[name].shape for name in _TABLES)
    fields: Any = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "hidden_act": ""}
    config = BertConfig(
        vocab_size=pieces,
        hidden_size=width,
        num_hidden_layers=len({match[0] for name in variables if (match := re.match(r"transformer/layer_\d+/", name))}),
        num_attention_heads=variables["transformer/layer_0/self_attention/query/kernel"].shape[1],
        intermediate_size=variables["transformer/layer_0/intermediate/kernel"].shape[1],
        max_position_embeddings=positions,
        type_vocab_size=types,
        **fields,
    )
    shapes = variable_shapes(config)
    names = {name: keras_name(name) for name in shapes}
    if set(names.values()) != variables.keys() or any(v.dtype != tf.float32 for v in variables.values()):
        return None
    # tf-models splits an axis into heads, which keeps the order of the values.
    weights: Any = {name: variables[names[name]].numpy().reshape(shape) for name, shape in shapes.items()}
    for activation in get_args(Activation):
        bert = Bert(weights, msgspec.structs.replace(config, hidden_act=activation))
        found, wanted = (_without_padding(outputs, inputs["input_mask"]) for outputs in (bert(inputs), expected))
        if len(found) == len(wanted) and all(_agree(a, b) for a, b in zip(found, wanted, strict=True)):
            return bert
        weights = bert.variables
    return None


def _without_padding(outputs: Outputs, mask: tf.Tensor) -> list[tf.Tensor]:
    weights = tf.cast(mask, tf.float32)[:, :, tf.newaxis]
    states = (*outputs["encoder_outputs"], outputs["sequence_output"])
    return [*(tf.cast(each, tf.float32) * weights for each in states), tf.cast(outputs["pooled_output"], tf.float32)]


def _agree(a: tf.Tensor, b: tf.Tensor) -> bool:
    return a.shape == b.shape and bool(tf.reduce_max(tf.abs(a - b)) <= _LARGEST_DEVIATION * tf.reduce_max(tf.abs(b)))
