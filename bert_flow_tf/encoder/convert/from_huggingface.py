"""From a Hugging Face BERT folder to an encoder folder. Weights come from safetensors only: nothing is unpickled."""

import contextlib
import os
import pathlib
import re
from typing import Any, Literal

import msgspec
import numpy as np
import safetensors

from bert_flow_tf.encoder.convert.bert_config import BertConfig
from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_folder
from bert_flow_tf.encoder.convert.families import FAMILIES, Family, family_of, read_hugging_face_config
from bert_flow_tf.encoder.convert.folders import TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, VOCAB_FILE, WEIGHTS_FILE
from bert_flow_tf.encoder.convert.sentence_transformers import sentence_transformer
from bert_flow_tf.encoder.convert.weights import WORD_EMBEDDINGS, check_shapes, hugging_face_name, variable_shapes
from bert_flow_tf.encoder.tokenizer import read_vocabulary
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.files.json_files import read_json

_FLOATS = ("F16", "BF16", "F32", "F64")


class _Normalizer(msgspec.Struct):
    """BERT's normalizer in `tokenizer.json`, with the only values that are computed here."""

    type: Literal["BertNormalizer"]
    lowercase: bool = True
    strip_accents: bool | None = None


class _WordPiece(msgspec.Struct):
    type: Literal["WordPiece"] = "WordPiece"
    vocab: dict[str, int] = {}


class _Tokenizer(msgspec.Struct):
    model: _WordPiece
    normalizer: _Normalizer | None = None


class _TokenizerConfig(msgspec.Struct):
    do_lower_case: bool | None = None
    strip_accents: bool | None = None


def convert_hugging_face(
    folder: str | os.PathLike,
    out_dir: str | os.PathLike,
    *,
    do_lower_case: bool | None = None,
    hidden_act: str | None = None,
    overwrite: bool = False,
) -> pathlib.Path:
    """Convert a Hugging Face or sentence-transformers folder and return the path of the encoder folder.

    Args:
      folder: folder with `config.json`, `vocab.txt` or `tokenizer.json`, and `model.safetensors` or its shards. A
        sentence-transformers folder, which has `modules.json`, also gives its pooling and its length.
      do_lower_case: True if the vocabulary is uncased; None takes it from the tokenizer's settings, else decides by the
        vocabulary's capitals.
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
    pieces, lower_cases = _read_tokenizer(bert)
    vocab = pieces or read_vocabulary(bert / VOCAB_FILE)
    if len(vocab) < config.vocab_size:
        # The other rows belong to no piece: sizes are rounded up for the speed of some accelerators.
        weights[WORD_EMBEDDINGS] = weights[WORD_EMBEDDINGS][: len(vocab)]
        config = msgspec.structs.replace(config, vocab_size=len(vocab))
    return write_encoder_folder(
        out_dir,
        config=config,
        vocab=vocab,
        weights=weights,
        do_lower_case=lower_cases if do_lower_case is None else do_lower_case,
        source={
            "kind": "Hugging Face folder",
            "sha256": hugging_face_digests(folder),
            "pooling": settings.pooling,
            "max_seq_length": settings.max_seq_length,
        },
        overwrite=overwrite,
    )


def hugging_face_digests(folder: pathlib.Path) -> dict[str, str]:
    """Return the SHA-256 of the files that the encoder depends on, by their names."""
    names = ("*.json", VOCAB_FILE, "model*.safetensors")
    paths = sorted(path for name in names for path in (*folder.glob(name), *folder.glob(f"*/{name}")))
    return {path.relative_to(folder).as_posix(): file_digest(path) for path in paths if path.is_file()}


def _read_tokenizer(folder: pathlib.Path) -> tuple[list[str], bool | None]:
    """Return the pieces in `tokenizer.json`, if `vocab.txt` is missing, and whether the tokenizer lower-cases.

    The latter is None if no file has it.

    Raises:
      UserError: a file cannot be read, or has settings that TF1 BERT's tokenizer does not have.
    """
    pieces: list[str] = []
    settings: _TokenizerConfig | _Normalizer | None = None
    path = folder / TOKENIZER_CONFIG_FILE
    if path.is_file():
        settings = read_json(path, _TokenizerConfig, expected="a tokenizer's settings", versioned=False)
    if (folder / TOKENIZER_FILE).is_file():
        path = folder / TOKENIZER_FILE
        tokenizer = read_json(path, _Tokenizer, expected="a WordPiece tokenizer", versioned=False)
        settings = tokenizer.normalizer or settings
        vocab = tokenizer.model.vocab
        if not (folder / VOCAB_FILE).is_file():
            if sorted(vocab.values()) != list(range(len(vocab))):
                raise UserError(f"{path}: model.vocab: expected word pieces with the ids from 0 to their number")
            pieces = sorted(vocab, key=vocab.__getitem__)
    if settings is None:
        return pieces, None
    lower_cases = settings.lowercase if isinstance(settings, _Normalizer) else settings.do_lower_case
    if settings.strip_accents not in (None, lower_cases):
        raise UserError(f"{path}: strip_accents: found {settings.strip_accents}, expected {lower_cases}, as TF1 BERT's")
    return pieces, lower_cases


def read_hugging_face_weights(
    folder: str | os.PathLike, config: BertConfig, family: Family = FAMILIES["bert"]
) -> dict[str, np.ndarray]:
    """Return a dict of TF1 name -> float32 array of the encoder's weights in a folder's safetensors files.

    Weights that the model does not have are 0: the pooler of a model that was saved without one, and those that its
    family lacks.

    Raises:
      UserError: a file cannot be read, or a tensor is missing, unexpected, of another shape, or not of floats.
    """
    folder = pathlib.Path(folder)
    path = folder / WEIGHTS_FILE
    files = [path] if path.is_file() else sorted(folder.glob("model-*-of-*.safetensors"))
    if not files:
        raise UserError(f"{path}: missing, expected the weights as safetensors")
    extras = re.compile(rf"({re.escape(family.prefix)})?({family.extras})")
    with contextlib.ExitStack() as stack:
        stored: dict[str, Any] = {}
        for file in files:
            try:
                shard = stack.enter_context(safetensors.safe_open(str(file), framework="numpy"))
                keys = [key for key in shard.keys() if not extras.fullmatch(key)]  # noqa: SIM118 (not a dict)
                stored |= {key: shard.get_slice(key) for key in keys}
            except safetensors.SafetensorError as error:
                raise UserError(f"{file}: not a safetensors file: {' '.join(str(error).split())}") from error
        prefix = family.prefix if any(key.startswith(family.prefix) for key in stored) else ""
        weights, keys, expected = {}, {}, {}
        for name, shape in variable_shapes(config).items():
            key = _key_in(stored, prefix, family.key(hugging_face_name(name)), name)
            if key is None:
                weights[name] = np.zeros(shape, np.float32)
            else:
                # Hugging Face's kernels are [out, in].
                keys[name], expected[key] = key, shape[:: -1 if name.endswith("/kernel") else 1]
        check_shapes({key: t.get_shape() for key, t in stored.items()}, expected, files[0], "this configuration")
        for name, key in keys.items():
            if (dtype := stored[key].get_dtype()) not in _FLOATS:
                raise UserError(f"{files[0]}: {key}: found type {dtype}, expected one of {', '.join(_FLOATS)}")
            value = stored[key][...].astype(np.float32)
            weights[name] = value.T if name.endswith("/kernel") else value
    return weights


def _key_in(stored: dict[str, Any], prefix: str, key: str | None, tf1_name: str) -> str | None:
    """Return the key of a weight in the files; None for a weight that this model does not have."""
    if key is None or ("/pooler/" in tf1_name and not any(".pooler." in f".{name}" for name in stored)):
        return None
    # Files that were made from TF1 checkpoints keep gamma and beta.
    old_key = f"{prefix}{key.rpartition('.')[0]}.{tf1_name.rpartition('/')[2]}"
    return old_key if "/LayerNorm/" in tf1_name and old_key in stored else prefix + key
