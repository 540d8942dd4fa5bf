"""Read an encoder and its preprocess model from TF-Hub's format."""

import hashlib
import logging
import math
import pathlib
import re
from typing import Any, get_args

import msgspec
import numpy as np
import tensorflow as tf
from absl import flags

from bert_flow_tf.common.atomic import check_writable
from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.reading import file_digest, reading
from bert_flow_tf.common.records import EncoderFiles
from bert_flow_tf.common.user_cache import cache_root, print_download
from bert_flow_tf.encoder.bert import Bert, Inputs, Outputs, Variables
from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.encoder.saved_model_encoder import SavedModelFiles
from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS, has_capitals, read_vocabulary
from bert_flow_tf.encoder.weights import (
    WORD_EMBEDDINGS,
    Activation,
    BertConfig,
    Pretrained,
    SourceRecord,
    check_weights,
    variable_shapes,
    vocabulary_digest,
)
from glow.lazy import quiet_import

logger = logging.getLogger(__name__)

# This tolerance is relative to the largest output. Rounding in six layers is below 1e-6; a wrong
# GELU differs by 2e-4.
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
_TABLES = ("word_embeddings", "position_embedding", "type_embeddings")


def read_tf_hub(
    encoder_dir: pathlib.Path,
    preprocess_dir: pathlib.Path,
    name: str,
    recorded: EncoderFiles | None = None,
) -> Pretrained | SavedModelFiles:
    """Read a BERT as `Pretrained`, any other encoder as `SavedModelFiles`.

    The SavedModel runs once. An encoder is a BERT if tf-models' names and an activation give its
    outputs. The dropout rates, which a SavedModel does not show, are BERT's 0.1.

    Args:
      name: the encoder in errors.
      recorded: a run's record; a SavedModel with other files is not loaded.
    """
    # tensorflow_hub takes a second to import.
    with quiet_import():
        import tensorflow_hub as hub

    vocab = _read_vocabulary(preprocess_dir)
    digest, fingerprint = _digests(encoder_dir, vocab)
    if recorded is not None:
        _check_recorded(digest, fingerprint, recorded, name)
    with reading(name, "an encoder"):
        loaded = hub.load(str(encoder_dir))
    variables = {v.name.removesuffix(":0"): v for v in loaded.variables if v.dtype.is_floating}
    _check_vocabulary(vocab, variables, name, preprocess_dir)
    case = getattr(loaded, "do_lower_case", None)
    lower = not has_capitals(vocab) if case is None else bool(case.numpy())
    record = SourceRecord(kind="TF-Hub", do_lower_case=lower)
    config = _config_of(variables)
    inputs = _probe_inputs(config)
    # Compare on the CPU, because a GPU rounds products differently.
    with (
        tf.device("/CPU:0"),
        reading(name, f"TF-Hub's BERT, version 3 or later, which takes {', '.join(TOKEN_INPUTS)}"),
    ):
        outputs = hub.KerasLayer(loaded)(inputs, training=False)
        outputs = {
            key: outputs[key] for key in ("encoder_outputs", "sequence_output", "pooled_output")
        }
        bert = None if config is None else _equal_bert(config, variables, inputs, outputs)
    if bert is None:
        logger.info("%s is not a BERT of tf-models, so its SavedModel runs", name)
        layers = len(outputs["encoder_outputs"])
        width = outputs["sequence_output"].shape[-1]
        return SavedModelFiles(
            encoder_dir, preprocess_dir, vocab, record, digest, fingerprint, layers, width
        )
    arrays = {key: variable.numpy() for key, variable in bert.variables.items()}
    check_weights(arrays, variable_shapes(bert.config), name, "a BERT")
    # The unused rows of some tables would give another fingerprint.
    arrays[WORD_EMBEDDINGS] = arrays[WORD_EMBEDDINGS][: len(vocab)]
    return Pretrained(
        msgspec.structs.replace(bert.config, vocab_size=len(vocab)), vocab, arrays, record, digest
    )


def _digests(encoder_dir: pathlib.Path, vocab: list[str]) -> tuple[str, str]:
    """Return the digest of a SavedModel's files, and of files and vocabulary.

    The second is the fingerprint of an encoder that is no BERT.
    """
    files = [encoder_dir / "saved_model.pb", *sorted((encoder_dir / "variables").glob("*"))]
    digest = hashlib.sha256("\n".join(map(file_digest, files)).encode()).hexdigest()
    return digest, vocabulary_digest(vocab, digest).hexdigest()


def _check_recorded(digest: str, fingerprint: str, recorded: EncoderFiles, name: str) -> None:
    """Raise `UserError` unless a run's record names these files."""
    if digest != recorded.files_digest and fingerprint != recorded.fingerprint:
        raise UserError(
            f"{name}: fingerprint: found {fingerprint}, expected {recorded.fingerprint}, as "
            "recorded"
        )


def _check_vocabulary(
    vocab: list[str],
    variables: Variables,
    name: str,
    preprocess_dir: pathlib.Path,
) -> None:
    """Raise `UserError` if the vocabulary is larger than the encoder's table."""
    table = next((v for key, v in variables.items() if "word_embeddings" in key), None)
    if table is not None and len(vocab) > table.shape[0]:
        expected = f"expected at most {table.shape[0]}, the word embeddings of {name}"
        raise UserError(f"{preprocess_dir}: found {len(vocab)} word pieces, {expected}")


def find_saved_model(handle: str, part: str, argument: str) -> tuple[str, pathlib.Path]:
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
    with quiet_import():
        import tensorflow_hub as hub
        from tensorflow_hub.resolver import tfhub_cache_dir

    # TensorFlow Hub's default cache in /tmp may belong to another user. TFHUB_CACHE_DIR overrides
    # this flag.
    flags.FLAGS.set_default("tfhub_cache_dir", str(cache_root() / "tfhub"))
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
        raise ArgumentError(
            f"{argument}={handle}: found no saved_model.pb in {path}, expected an encoder's folder"
        )
    return handle, path


def keras_name(tf1_name: str) -> str:
    """Return tf-models' name of a variable: `transformer/layer_0/output/kernel`."""
    name = tf1_name.removeprefix("bert/").replace("encoder/layer_", "transformer/layer_")
    return re.sub("|".join(_KERAS_NAMES), lambda match: _KERAS_NAMES[match[0]], name)


def _read_vocabulary(preprocess_dir: pathlib.Path) -> list[str]:
    files = sorted(path for path in (preprocess_dir / "assets").glob("*") if path.is_file())
    if len(files) != 1:
        raise UserError(
            f"{preprocess_dir}: found {len(files)} assets, expected only the vocabulary file"
        )
    return read_vocabulary(files[0])


def _config_of(variables: Variables) -> BertConfig | None:
    """Return the shape of tf-models' BERT; None for other or half-precision variables."""
    shapes = {
        name: tuple(variable.shape)
        for name, variable in variables.items()
        if variable.dtype == tf.float32
    }
    try:
        (pieces, width), (positions, _), (types, _) = (
            shapes[f"{name}/embeddings"] for name in _TABLES
        )
        config = BertConfig(
            vocab_size=pieces,
            hidden_size=width,
            num_hidden_layers=sum(name.endswith("/intermediate/bias") for name in shapes),
            num_attention_heads=shapes["transformer/layer_0/self_attention/query/kernel"][1],
            intermediate_size=shapes["transformer/layer_0/intermediate/bias"][0],
            max_position_embeddings=positions,
            type_vocab_size=types,
            hidden_act="linear",
        )
    except KeyError:
        return None
    sizes = {keras_name(name): math.prod(shape) for name, shape in variable_shapes(config).items()}
    return (
        config
        if sizes == {name: math.prod(variable.shape) for name, variable in variables.items()}
        else None
    )


def _probe_inputs(config: BertConfig | None) -> Inputs:
    """Return inputs [2, seq] with many ids, all types and some padding."""
    pieces, types = (config.vocab_size, config.type_vocab_size) if config else (2, 1)
    length = min(config.max_position_embeddings, 16) if config else 16
    positions = tf.reshape(tf.range(2 * length), [2, length])
    mask = tf.cast(positions < length + length // 2, tf.int32)
    # A prime factor spreads the ids over the vocabulary.
    return dict(
        zip(TOKEN_INPUTS, (positions * 7919 % pieces, mask, positions % types), strict=True)
    )


def _equal_bert(
    config: BertConfig, variables: Variables, inputs: Inputs, expected: Outputs
) -> Bert | None:
    """Return a `Bert` that gives the SavedModel's outputs; None if none does."""
    # tf-models splits an axis into heads, which keeps the order of the values.
    shapes = variable_shapes(config).items()
    values: Any = {
        name: variables[keras_name(name)].numpy().reshape(shape) for name, shape in shapes
    }
    mask = tf.cast(inputs["input_mask"], tf.float32)[:, :, tf.newaxis]
    for activation in get_args(Activation):
        bert = Bert(values, msgspec.structs.replace(config, hidden_act=activation))
        found, wanted = (
            # States at padding may differ.
            [
                *(tf.cast(state, tf.float32) * mask for state in outputs["encoder_outputs"]),
                outputs["pooled_output"],
            ]
            for outputs in (bert(inputs), expected)
        )
        if len(found) == len(wanted) and all(
            np.abs(a - b).max() <= _LARGEST_DEVIATION * np.abs(b).max()
            for a, b in zip(found, wanted, strict=True)
        ):
            return bert
        values = bert.variables
    return None
