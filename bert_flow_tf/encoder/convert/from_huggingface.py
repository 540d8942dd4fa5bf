"""From a Hugging Face BERT folder to an encoder folder. Weights come from safetensors only: nothing is unpickled."""

import contextlib
import os
import pathlib
import re
import tempfile
from typing import Any

import msgspec
import numpy as np
import safetensors

from bert_flow_tf.encoder.convert.bert_config import BertConfig
from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_folder
from bert_flow_tf.encoder.convert.families import FAMILIES, Family, family_of, read_hugging_face_config
from bert_flow_tf.encoder.convert.folders import INDEX_FILE, VOCAB_FILE, WEIGHTS_FILE
from bert_flow_tf.encoder.convert.sentence_transformers import SETTINGS_FILES, sentence_transformer
from bert_flow_tf.encoder.convert.weights import WORD_EMBEDDINGS, check_shapes, variable_shapes
from bert_flow_tf.encoder.vocabulary import read_vocabulary
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.files.json_files import read_json

TOKENIZER_FILE, TOKENIZER_CONFIG_FILE = "tokenizer.json", "tokenizer_config.json"
_FLOATS = ("F16", "BF16", "F32", "F64")


class _Normalizer(msgspec.Struct):
    """What `tokenizer.json` says of BERT's normalizer; no other values can be computed."""

    type: str
    clean_text: bool = True
    handle_chinese_chars: bool = True
    strip_accents: bool | None = None
    lowercase: bool = True


class _Pieces(msgspec.Struct):
    type: str = "WordPiece"
    vocab: Any = None


class _Tokenizer(msgspec.Struct):
    model: _Pieces
    normalizer: _Normalizer | None = None


def convert_hugging_face(
    folder: str | os.PathLike,
    out_dir: str | os.PathLike,
    *,
    do_lower_case: bool | None = None,
    hidden_act: str | None = None,
    overwrite: bool = False,
) -> pathlib.Path:
    """Path of the encoder folder made from a Hugging Face or sentence-transformers folder.

    Args:
      folder: folder with `config.json`, `vocab.txt` or `tokenizer.json`, and `model.safetensors` or its shards. A
        sentence-transformers folder, which has `modules.json`, also gives its pooling and its length.
      do_lower_case: whether the vocabulary is uncased; None takes it from the tokenizer's settings, else by whether
        pieces have capitals.
      hidden_act: activation instead of the configuration's, such as gelu_tanh to compare with TF1 code on these
        weights.

    Raises:
      UserError: a file is missing, weights, configuration and vocabulary do not fit each other, or it is another
        architecture.
    """
    folder = pathlib.Path(folder)
    settings = sentence_transformer(folder)
    bert = folder / settings.transformer
    config = read_hugging_face_config(bert / "config.json")
    if hidden_act:
        config = msgspec.structs.replace(config, hidden_act=hidden_act)
    weights = read_hugging_face_weights(bert, config, family_of(bert / "config.json"))
    with contextlib.ExitStack() as stack:
        vocab_file = bert / VOCAB_FILE
        if not vocab_file.is_file() and (bert / TOKENIZER_FILE).is_file():
            vocab_file = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())) / VOCAB_FILE
            vocab_file.write_text("".join(f"{piece}\n" for piece in _pieces(bert / TOKENIZER_FILE)), encoding="utf-8")
        if do_lower_case is None:
            do_lower_case = lower_cases(bert)
        pieces = len(read_vocabulary(vocab_file))
        if pieces < config.vocab_size:
            # Rows that no piece has: widths are rounded up for the speed of some accelerators.
            weights[WORD_EMBEDDINGS] = weights[WORD_EMBEDDINGS][:pieces]
            config = msgspec.structs.replace(config, vocab_size=pieces)
        return write_encoder_folder(
            out_dir,
            config=config,
            vocab_file=vocab_file,
            weights=weights,
            do_lower_case=do_lower_case,
            source={
                "kind": "Hugging Face folder",
                "sha256": hugging_face_digests(folder),
                "pooling": settings.pooling,
                "max_seq_length": settings.max_seq_length,
            },
            overwrite=overwrite,
        )


def hugging_face_digests(folder: pathlib.Path) -> dict[str, str]:
    """SHA-256 of the files that the encoder depends on, by their names."""
    bert = folder / sentence_transformer(folder).transformer
    names = ("config.json", VOCAB_FILE, TOKENIZER_FILE, TOKENIZER_CONFIG_FILE)
    paths = [*(bert / name for name in names), *_weight_files(bert), *(folder / name for name in SETTINGS_FILES)]
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in sorted(paths) if path.is_file()}


def lower_cases(folder: pathlib.Path) -> bool | None:
    """What `tokenizer.json` or `tokenizer_config.json` in the folder says of lower-casing; None where they say nothing.

    Raises:
      UserError: a file cannot be read, or is no settings of a BERT's tokenizer.
    """
    if (folder / TOKENIZER_FILE).is_file():
        normalizer = _read_tokenizer(folder / TOKENIZER_FILE).normalizer
        if normalizer is not None:
            return normalizer.lowercase
    path = folder / TOKENIZER_CONFIG_FILE
    if not path.is_file():
        return None
    settings = read_json(path, dict, expected="a tokenizer's settings", versioned=False)
    do_lower_case = settings["do_lower_case"] if isinstance(settings.get("do_lower_case"), bool) else None
    accents, chinese = settings.get("strip_accents"), settings.get("tokenize_chinese_chars")
    if accents not in (None, do_lower_case) or chinese is False:
        raise UserError(
            f"{path}: found strip_accents {accents} and tokenize_chinese_chars {chinese}, expected TF1 BERT's tokenizer"
        )
    return do_lower_case


def _read_tokenizer(path: pathlib.Path) -> _Tokenizer:
    tokenizer = read_json(path, _Tokenizer, expected="a tokenizer's settings", versioned=False)
    normalizer = tokenizer.normalizer
    if tokenizer.model.type != "WordPiece":
        raise UserError(f"{path}: found a tokenizer of type {tokenizer.model.type}, expected WordPiece, as BERT's")
    if normalizer is not None and (
        normalizer.type != "BertNormalizer"
        or not (normalizer.clean_text and normalizer.handle_chinese_chars)
        or normalizer.strip_accents not in (None, normalizer.lowercase)
    ):
        raise UserError(f"{path}: normalizer: found {msgspec.structs.asdict(normalizer)}, expected TF1 BERT's")
    return tokenizer


def _pieces(path: pathlib.Path) -> list[str]:
    """The pieces in `tokenizer.json`, in the order of their ids."""
    vocab = _read_tokenizer(path).model.vocab
    if not isinstance(vocab, dict) or sorted(map(str, vocab.values())) != sorted(map(str, range(len(vocab)))):
        raise UserError(f"{path}: model.vocab: expected word pieces with the ids from 0 to their number")
    return sorted(vocab, key=vocab.__getitem__)


def hugging_face_name(tf1_name: str) -> str:
    """Hugging Face's name, without the prefix "bert.", of the variable that TF1 calls `tf1_name`."""
    name = re.sub(r"^bert/", "", re.sub(r"/layer_(\d+)/", r"/layer/\1/", tf1_name))
    name = re.sub(r"(?<=_embeddings)$|/kernel$|/gamma$", "/weight", name)
    return re.sub(r"/beta$", "/bias", name).replace("/", ".")


def _weight_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The file of weights, or the shards that the index names."""
    index = folder / INDEX_FILE
    if (folder / WEIGHTS_FILE).is_file() or not index.is_file():
        return [folder / WEIGHTS_FILE]
    shards = read_json(index, dict, expected="an index of weights", versioned=False).get("weight_map")
    if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
        raise UserError(f"{index}: weight_map: expected the file of each tensor")
    return [folder / pathlib.PurePath(name).name for name in sorted(set(shards.values()))]


def read_hugging_face_weights(
    folder: str | os.PathLike, config: BertConfig, family: Family = FAMILIES["bert"]
) -> dict[str, np.ndarray]:
    """dict of TF1 name -> float32 array of the encoder's weights in a folder's safetensors files.

    What the model has not got is 0: the pooler of one that was saved without, and what its family has not.

    Raises:
      UserError: a file cannot be read, or a tensor is missing, unexpected, of another shape, or not of floats.
    """
    paths = _weight_files(pathlib.Path(folder))
    extras = re.compile(rf"({re.escape(family.prefix)})?({family.extras})")
    stored: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        for path in paths:
            if not path.is_file():
                raise UserError(f"{path}: no such file, expected the weights as safetensors")
            try:
                file = stack.enter_context(safetensors.safe_open(str(path), framework="numpy"))
                keys = [key for key in file.keys() if not extras.fullmatch(key)]  # noqa: SIM118 (not a dict)
                stored |= {key: file.get_slice(key) for key in keys}
            except safetensors.SafetensorError as error:
                raise UserError(f"{path}: not a safetensors file: {' '.join(str(error).split())}") from error
        return _read_tensors(paths[0], stored, config, family)


def _read_tensors(
    path: pathlib.Path, stored: dict[str, Any], config: BertConfig, family: Family
) -> dict[str, np.ndarray]:
    prefix = family.prefix if any(key.startswith(family.prefix) for key in stored) else ""
    expected = variable_shapes(config)
    of_family = {name: family.key(hugging_face_name(name)) for name in expected}
    keys = {name: _key_in(stored, prefix + key, name) for name, key in of_family.items() if key is not None}
    zero = [name for name in keys if "/pooler/" in name and keys[name] not in stored]
    if len(zero) == 1:
        # Half a pooler: the file is damaged.
        zero = []
    zero += [name for name in expected if name not in keys]
    weights = {name: np.zeros(expected.pop(name), np.float32) for name in zero}
    tf1_names = {keys[name]: name for name in expected}
    shapes = {}
    for key, tensor in stored.items():
        name = tf1_names.get(key, key)
        # Hugging Face's kernels are [out, in].
        shapes[name] = tensor.get_shape()[:: -1 if name.endswith("/kernel") else 1]
    check_shapes(shapes, expected, path, "this configuration", lambda name: keys.get(name, name))
    for name in expected:
        tensor = stored[keys[name]]
        if tensor.get_dtype() not in _FLOATS:
            raise UserError(
                f"{path}: {keys[name]} is of type {tensor.get_dtype()}, expected {', '.join(_FLOATS[:-1])} or "
                f"{_FLOATS[-1]}"
            )
        value = tensor[...].astype(np.float32)
        weights[name] = value.T if name.endswith("/kernel") else value
    return weights


def _key_in(stored: dict[str, Any], key: str, tf1_name: str) -> str:
    """`key`, or its spelling in files made from TF1 checkpoints, which keep gamma and beta."""
    if "/LayerNorm/" in tf1_name:
        old_key = f"{key.rpartition('.')[0]}.{tf1_name.rpartition('/')[2]}"
        if old_key in stored:
            return old_key
    return key
