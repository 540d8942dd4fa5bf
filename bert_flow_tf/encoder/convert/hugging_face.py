"""Read BERT folders of Hugging Face and sentence-transformers.

This module does not read pickled weights, because unpickling can run code.
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
import safetensors
import tensorflow as tf

from bert_flow_tf.encoder.convert.folders import (
    BERT_SETTINGS_FILE,
    MODULES_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    VOCAB_FILE,
    WEIGHTS_FILE,
    read_encoder_record,
)
from bert_flow_tf.encoder.convert.tokenizer_files import read_case
from bert_flow_tf.encoder.tokenizer import read_vocabulary
from bert_flow_tf.encoder.weights import (
    WORD_EMBEDDINGS,
    BertConfig,
    EncoderRecord,
    LazyArrays,
    Pretrained,
    check_arrays,
    read_bert_config,
    variable_shapes,
)
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import read_json
from bert_flow_tf.files.reading import reading

# Older versions say mean_tokens and cls_token. The library's cls is the last layer's state, not the pooled output.
_POOLINGS = {"mean": "avg", "mean_tokens": "avg", "cls": "paper-cls", "cls_token": "paper-cls"}
_DEFAULT_LENGTH = 512
# The types of safetensors that a BERT may have.
_TYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": tf.bfloat16.as_numpy_dtype, "I64": "i8", "I32": "i4"}


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of Hugging Face models with BERT's architecture.

    Attributes:
      prefix: prefix of the weights' keys, which a file may omit.
      extras: regular expression for keys, without the prefix, of unused weights such as heads.
      keys: dict from the family's keys in `config.json` to BERT's, where they differ.
      key: function from BERT's key, such as `encoder.layer.0.output.dense.weight`, to the family's; None for a weight
        that the family lacks, which becomes 0.
    """

    prefix: str
    extras: str
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    key: Callable[[str], str | None] = lambda key: key


_DISTILBERT_PARTS = {
    **{f"attention.self.{name}": f"attention.{name[0]}_lin" for name in ("query", "key", "value")},
    **{"attention.output.dense": "attention.out_lin", "attention.output.LayerNorm": "sa_layer_norm"},
    **{"intermediate.dense": "ffn.lin1", "output.dense": "ffn.lin2", "output.LayerNorm": "output_layer_norm"},
}


def _distilbert_key(key: str) -> str | None:
    if key == "embeddings.token_type_embeddings.weight":
        return None
    layer = re.fullmatch(r"encoder\.(layer\.\d+)\.(.+)\.(weight|bias)", key)
    return f"transformer.{layer[1]}.{_DISTILBERT_PARTS[layer[2]]}.{layer[3]}" if layer else key


_DISTILBERT_KEYS = {
    **{"dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads"},
    **{"hidden_dim": "intermediate_size", "activation": "hidden_act"},
    **{"dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob"},
}
_DISTILBERT_EXTRAS = r"vocab_(transform|layer_norm|projector)\..*|embeddings\.position_ids"
# The extras are pre-training heads, and a constant in files of older versions.
FAMILIES = {
    "bert": Family("bert.", r"cls\..*|embeddings\.position_ids"),
    "distilbert": Family("distilbert.", _DISTILBERT_EXTRAS, _DISTILBERT_KEYS, _distilbert_key),
}


def read_hugging_face_config(path: pathlib.Path) -> tuple[BertConfig, Family]:
    kind = read_json(path, dict, expected="a model's configuration", versioned=False).get("model_type", "bert")
    if kind not in FAMILIES:
        raise UserError(f"{path}: model_type: found {kind}, expected {' or '.join(FAMILIES)}")
    return read_bert_config(path, FAMILIES[kind].keys), FAMILIES[kind]


class SentenceTransformer(msgspec.Struct, frozen=True):
    """The settings of a sentence-transformers folder, or the defaults of a BERT."""

    transformer: str = ""  # BERT's path within the folder
    pooling: str | None = None
    max_seq_length: int | None = None


def read_hugging_face(folder: pathlib.Path, *, hidden_act: str | None = None) -> Pretrained:
    """Read an encoder folder, or another one of Hugging Face or sentence-transformers.

    The weights stay in the file; only other types than float32 are copied into memory.

    Args:
      folder: folder with `config.json`, `vocab.txt` or `tokenizer.json`, and `model.safetensors` or its shards. A
        sentence-transformers folder (with `modules.json`) also gives pooling and length.
      hidden_act: activation that replaces the folder's, such as gelu_tanh to compare with TF1 code.
    """
    record = read_encoder_record(folder)
    settings = sentence_transformer(folder)
    bert = folder / settings.transformer
    config, family = read_hugging_face_config(bert / "config.json")
    # Newer versions of transformers write only tokenizer.json.
    ids = {} if (bert / VOCAB_FILE).is_file() else _settings(bert / TOKENIZER_FILE).get("model", {}).get("vocab", {})
    vocab = sorted(ids, key=ids.__getitem__) or read_vocabulary(bert / VOCAB_FILE)
    weights = read_hugging_face_weights(bert, config, family, len(vocab))
    changes: Any = {"hidden_act": hidden_act or config.hidden_act, "vocab_size": min(config.vocab_size, len(vocab))}
    if record is None:
        own: Any = {"pooling": settings.pooling, "max_seq_length": settings.max_seq_length}
        record = EncoderRecord(kind="Hugging Face", do_lower_case=read_case(bert, vocab, folder.absolute().name), **own)
    return Pretrained(msgspec.structs.replace(config, **changes), vocab, weights, record)


def sentence_transformer(folder: pathlib.Path) -> SentenceTransformer:
    """Return a folder's settings, or defaults if it has no `modules.json`.

    A last module Normalize is ignored, because it does not change cosines.
    """
    path = folder / MODULES_FILE
    if not path.is_file():
        return SentenceTransformer()
    with reading(path, "sentence-transformers' modules"):
        modules = [(module["type"], module["path"]) for module in msgspec.json.decode(path.read_bytes())]
    # The library moves its classes between versions but keeps their names.
    kinds = [kind.rpartition(".")[2] for kind, _ in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UserError(f"{path}: found modules {kinds}, expected Transformer, Pooling and Normalize")
    bert, path = folder / modules[0][1], folder / modules[1][1] / "config.json"
    settings = _settings(path)
    # Older versions have a boolean per mode, such as pooling_mode_mean_tokens.
    modes = [name for name, value in settings.items() if name.startswith("pooling_mode_") and value is True]
    mode = str(settings.get("pooling_mode") or " and ".join(modes))
    pooling = _POOLINGS.get(mode.removeprefix("pooling_mode_"))
    if pooling is None:
        raise UserError(f"{path}: pooling_mode: found {mode}, expected mean or cls")
    names = (BERT_SETTINGS_FILE, TOKENIZER_CONFIG_FILE, "config.json")
    bert_settings, tokenizer_settings, config = (_settings(bert / name) for name in names)
    if bert_settings.get("do_lower_case"):
        raise UserError(f"{bert / BERT_SETTINGS_FILE}: do_lower_case: found true, expected it in {TOKENIZER_FILE}")
    # Without this setting, the library uses the tokenizer's length or the number of positions, whichever is smaller.
    found, positions = bert_settings.get("max_seq_length"), config.get("max_position_embeddings")
    if found is not None and not (isinstance(found, int) and 3 <= found <= (positions or found)):
        name = f"{bert / BERT_SETTINGS_FILE}: max_seq_length"
        raise UserError(f"{name}: found {found!r}, expected 3 to {positions}")
    lengths = [found] if found else [tokenizer_settings.get("model_max_length"), positions]
    length = min((length for length in lengths if isinstance(length, int)), default=_DEFAULT_LENGTH)
    return SentenceTransformer(modules[0][1], pooling, length)


def _settings(path: pathlib.Path) -> dict[str, Any]:
    return read_json(path, dict, expected="a model's settings", versioned=False) if path.is_file() else {}


def hugging_face_name(tf1_name: str) -> str:
    """Return Hugging Face's name, without "bert.", for a TF1 name."""
    name = re.sub(r"^bert/", "", re.sub(r"/layer_(\d+)/", r"/layer/\1/", tf1_name))
    name = re.sub(r"(?<=_embeddings)$|/kernel$|/gamma$", "/weight", name)
    return re.sub(r"/beta$", "/bias", name).replace("/", ".")


def read_hugging_face_weights(
    folder: pathlib.Path, config: BertConfig, family: Family = FAMILIES["bert"], pieces: int | None = None
) -> Mapping[str, np.ndarray]:
    """Return float32 arrays by TF1 name from a folder's safetensors files.

    A weight that the family lacks and a missing pooler are 0. `pieces` cuts the table of word embeddings, which has
    unused rows in some models.
    """
    path = folder / WEIGHTS_FILE
    paths = [path] if path.is_file() else sorted(folder.glob("model-*-of-*.safetensors"))
    if not paths:
        raise UserError(f"{path}: missing, expected the weights as safetensors")
    tensors: dict[str, Callable[[], np.ndarray]] = {}
    for file in paths:
        for key, read in _readers(file).items():
            # Files converted from TF1 checkpoints have the names gamma and beta.
            key = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", key)).removeprefix(family.prefix)
            if not re.fullmatch(family.extras, key):
                tensors[key] = read
    has_pooler, shapes = any(key.startswith("pooler.") for key in tensors), variable_shapes(config)
    keys = {name: family.key(hugging_face_name(name)) for name in shapes if has_pooler or "/pooler/" not in name}
    # Hugging Face's kernels are transposed, [out, in].
    stored = {key: shapes[name][:: -1 if name.endswith("/kernel") else 1] for name, key in keys.items() if key}
    check_arrays(LazyArrays(tensors), stored, paths[0], "this configuration")

    def reader(name: str) -> Callable[[], np.ndarray]:
        if not (key := keys.get(name)):
            return lambda: np.zeros(shapes[name], np.float32)
        if name.endswith("/kernel"):
            return lambda: tensors[key]().astype(np.float32, copy=False).T
        rows = pieces if name == WORD_EMBEDDINGS else None
        return lambda: tensors[key]()[:rows].astype(np.float32, copy=False)

    return LazyArrays({name: reader(name) for name in shapes})


def _readers(path: pathlib.Path) -> dict[str, Callable[[], np.ndarray]]:
    """Return functions by name that map a file's arrays."""
    with reading(path, "a safetensors file"):
        # The library checks the header, so its offsets are right.
        with safetensors.safe_open(path, "np"):
            # It stays open, so that a later file of this name does not replace it.
            file = path.open("rb")
        size = int.from_bytes(file.read(8), "little")
        header = msgspec.json.decode(file.read(size), type=dict[str, dict])
        header.pop("__metadata__", None)
        return {
            name: functools.partial(
                np.memmap, file, _TYPES[one["dtype"]], "r", 8 + size + one["data_offsets"][0], tuple(one["shape"])
            )
            for name, one in header.items()
        }
