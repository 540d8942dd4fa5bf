"""Read the folder of a Hugging Face or sentence-transformers BERT.

Weights come from safetensors only: nothing is unpickled.
"""

import os
import pathlib
import re
from typing import Any, Literal

import msgspec
import numpy as np
import safetensors.numpy

from bert_flow_tf.encoder.convert.bert_config import BertConfig
from bert_flow_tf.encoder.convert.encoder_folder import Pretrained, write_encoder_folder
from bert_flow_tf.encoder.convert.families import FAMILIES, Family, family_of, read_hugging_face_config
from bert_flow_tf.encoder.convert.folders import (
    MODULES_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCAB_FILE,
    WEIGHTS_FILE,
)
from bert_flow_tf.encoder.convert.weights import WORD_EMBEDDINGS, check_shapes, hugging_face_name, variable_shapes
from bert_flow_tf.encoder.tokenizer import read_vocabulary
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import read_json
from bert_flow_tf.files.reading import reading

BERT_SETTINGS_FILE = "sentence_bert_config.json"
# The library's poolings by their names here; its cls is the last layer's state, not BERT's pooled output.
_POOLINGS = {"mean": "avg", "cls": "paper-cls"}
_DEFAULT_LENGTH = 512  # of BERT


class SentenceTransformer(msgspec.Struct, frozen=True):
    """The settings of a folder.

    Attributes:
      transformer: path, in the folder, of the folder with BERT.
      pooling, max_seq_length: settings of the sentence embedding; None for a BERT alone.
    """

    transformer: str = ""
    pooling: str | None = None
    max_seq_length: int | None = None


class _Module(msgspec.Struct):
    type: str
    path: str = ""


class _Normalizer(msgspec.Struct):
    """BERT's normalizer in `tokenizer.json`, or the same settings in `tokenizer_config.json`."""

    type: Literal["BertNormalizer"] = "BertNormalizer"
    lowercase: bool | None = None
    do_lower_case: bool | None = None
    strip_accents: bool | None = None


class _WordPiece(msgspec.Struct):
    type: Literal["WordPiece"] = "WordPiece"
    vocab: dict[str, int] = {}


class _Tokenizer(msgspec.Struct):
    model: _WordPiece
    normalizer: _Normalizer | None = None


def convert_hugging_face(
    folder: str | os.PathLike, out_dir: str | os.PathLike, *, overwrite: bool = False, **options: Any
) -> pathlib.Path:
    """Convert a Hugging Face folder and return the path of the encoder folder; arguments are `read_hugging_face`'s."""
    return write_encoder_folder(out_dir, read_hugging_face(pathlib.Path(folder), **options), overwrite=overwrite)


def read_hugging_face(
    folder: pathlib.Path, *, do_lower_case: bool | None = None, hidden_act: str | None = None
) -> Pretrained:
    """Read a Hugging Face or sentence-transformers folder.

    Args:
      folder: folder with `config.json`, `vocab.txt` or `tokenizer.json`, and `model.safetensors` or its shards. A
        sentence-transformers folder, which has `modules.json`, also gives its pooling and its length.
      do_lower_case: True if the vocabulary is uncased; None takes the tokenizer's setting, else looks for capitals.
      hidden_act: activation instead of the configuration's, such as gelu_tanh to compare with TF1 code.

    Raises:
      UserError: a file is missing, the files do not fit each other, or it is another architecture.
    """
    settings = sentence_transformer(folder)
    bert = folder / settings.transformer
    config = read_hugging_face_config(bert / "config.json")
    weights = read_hugging_face_weights(bert, config, family_of(bert / "config.json"))
    vocab, lower_cases = _read_tokenizer(bert)
    # Further rows belong to no piece: sizes are rounded up for the speed of some accelerators.
    weights[WORD_EMBEDDINGS] = weights[WORD_EMBEDDINGS][: len(vocab)]
    changes = {"hidden_act": hidden_act or config.hidden_act, "vocab_size": len(weights[WORD_EMBEDDINGS])}
    source = {"kind": "Hugging Face", "pooling": settings.pooling, "max_seq_length": settings.max_seq_length}
    if do_lower_case is None:
        do_lower_case = lower_cases
    return Pretrained(msgspec.structs.replace(config, **changes), vocab, weights, do_lower_case, source)


def sentence_transformer(folder: pathlib.Path) -> SentenceTransformer:
    """Return the settings in a folder; those of a BERT alone if it has no `modules.json`.

    With them, the cosines of `BertFlow` are the library's, whether or not a last module scales embeddings to norm 1.

    Raises:
      UserError: a file cannot be read, or asks for an unknown module or pooling.
    """
    path = folder / MODULES_FILE
    if not path.is_file():
        return SentenceTransformer()
    modules = read_json(path, list[_Module], expected="sentence-transformers' modules", versioned=False)
    # The library has moved its classes between versions; their names stay.
    kinds = [module.type.rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UserError(f"{path}: found modules {kinds}, expected Transformer, Pooling and Normalize")
    bert, pooling = (folder / module.path for module in modules[:2])
    return SentenceTransformer(modules[0].path, _pooling(pooling / "config.json"), _max_seq_length(bert))


def _pooling(path: pathlib.Path) -> str:
    settings = _settings(path)
    mode = settings.get("pooling_mode")
    if not isinstance(mode, str):
        # Older versions have a boolean for each mode, such as pooling_mode_mean_tokens.
        named = {f"pooling_mode_{name}_token{s}": name for name in _POOLINGS for s in ("", "s")}
        true = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True]
        mode = named.get(true[0]) if len(true) == 1 else " and ".join(true)
    if mode not in _POOLINGS:
        raise UserError(f"{path}: pooling_mode: found {mode}, expected {' or '.join(_POOLINGS)}")
    return _POOLINGS[mode]


def _max_seq_length(folder: pathlib.Path) -> int:
    """Return the length as the library does: the folder's, else the least that tokenizer and positions allow."""
    names = (BERT_SETTINGS_FILE, TOKENIZER_CONFIG_FILE, "config.json")
    of_bert, of_tokenizer, config = (_settings(path) if (path := folder / name).is_file() else {} for name in names)
    if of_bert.get("do_lower_case"):
        raise UserError(f"{folder / BERT_SETTINGS_FILE}: do_lower_case: found true, expected the tokenizer to do it")
    found = of_bert.get("max_seq_length")
    lengths = [found] if found else [of_tokenizer.get("model_max_length"), config.get("max_position_embeddings")]
    return min((length for length in lengths if isinstance(length, int)), default=_DEFAULT_LENGTH)


def _settings(path: pathlib.Path) -> dict[str, Any]:
    return read_json(path, dict[str, Any], expected="a model's settings", versioned=False)


def _read_tokenizer(folder: pathlib.Path) -> tuple[list[str], bool | None]:
    """Return the vocabulary and whether the tokenizer lower-cases, None if no file has that setting.

    Raises:
      UserError: a file cannot be read, or has settings that TF1 BERT's tokenizer does not have.
    """
    path, settings, vocab = folder / TOKENIZER_FILE, None, {}
    if path.is_file():
        tokenizer = read_json(path, _Tokenizer, expected="a WordPiece tokenizer", versioned=False)
        settings, vocab = tokenizer.normalizer, tokenizer.model.vocab
    if settings is None and (folder / TOKENIZER_CONFIG_FILE).is_file():
        path = folder / TOKENIZER_CONFIG_FILE
        settings = read_json(path, _Normalizer, expected="a tokenizer's settings", versioned=False)
    settings = settings or _Normalizer()
    lower_cases = settings.do_lower_case if settings.lowercase is None else settings.lowercase
    if settings.strip_accents not in (None, lower_cases):
        raise UserError(f"{path}: strip_accents: found {settings.strip_accents}, expected {lower_cases}, as TF1 BERT's")
    if (folder / VOCAB_FILE).is_file() or not vocab:
        return read_vocabulary(folder / VOCAB_FILE), lower_cases
    if sorted(vocab.values()) != list(range(len(vocab))):
        raise UserError(f"{path}: model.vocab: expected word pieces with the ids from 0 to their number")
    return sorted(vocab, key=vocab.__getitem__), lower_cases


def read_hugging_face_weights(
    folder: str | os.PathLike, config: BertConfig, family: Family = FAMILIES["bert"]
) -> dict[str, np.ndarray]:
    """Return a dict of TF1 name -> float32 array of the encoder's weights in a folder's safetensors files.

    Weights that the model does not have are 0: the pooler of a model that was saved without one, and those that its
    family lacks.

    Raises:
      UserError: a file cannot be read, or a tensor is missing, unexpected, of another shape, or not of floats.
    """
    path = pathlib.Path(folder) / WEIGHTS_FILE
    files = [path] if path.is_file() else sorted(path.parent.glob("model-*-of-*.safetensors"))
    if not files:
        raise UserError(f"{path}: missing, expected the weights as safetensors")
    extras = re.compile(rf"({re.escape(family.prefix)})?({family.extras})")
    stored: dict[str, np.ndarray] = {}
    for file in files:
        with reading(file, "a safetensors file"):
            stored |= {key: t for key, t in safetensors.numpy.load_file(file).items() if not extras.fullmatch(key)}
    prefix = family.prefix if any(key.startswith(family.prefix) for key in stored) else ""
    weights, keys, expected = {}, {}, {}
    for name, shape in variable_shapes(config).items():
        key = _key_in(stored, prefix, family.key(hugging_face_name(name)), name)
        if key is None:
            weights[name] = np.zeros(shape, np.float32)
        else:
            # Hugging Face's kernels are [out, in].
            keys[name], expected[key] = key, shape[:: -1 if name.endswith("/kernel") else 1]
    check_shapes({key: tensor.shape for key, tensor in stored.items()}, expected, files[0], "this configuration")
    for name, key in keys.items():
        value = stored[key]
        if value.dtype.kind in "iub":
            raise UserError(f"{files[0]}: {key}: found type {value.dtype}, expected floats")
        value = value.astype(np.float32)
        weights[name] = value.T if name.endswith("/kernel") else value
    return weights


def _key_in(stored: dict[str, Any], prefix: str, key: str | None, tf1_name: str) -> str | None:
    """Return the key of a weight in the files; None for a weight that this model does not have."""
    if key is None or ("/pooler/" in tf1_name and not any(".pooler." in f".{name}" for name in stored)):
        return None
    # Files that were made from TF1 checkpoints keep gamma and beta.
    old_key = f"{prefix}{key.rpartition('.')[0]}.{tf1_name.rpartition('/')[2]}"
    return old_key if "/LayerNorm/" in tf1_name and old_key in stored else prefix + key
