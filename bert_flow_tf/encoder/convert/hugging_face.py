"""Read BERT folders of Hugging Face and sentence-transformers.

This module does not read pickled weights, because unpickling can run code.
"""

import dataclasses
import functools
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import safetensors
import tensorflow as tf

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import read_json
from bert_flow_tf.common.reading import reading
from bert_flow_tf.encoder.convert import folders
from bert_flow_tf.encoder.convert.tokenizer_files import read_tokenizer
from bert_flow_tf.encoder.pooling import LIBRARY_NAMES
from bert_flow_tf.encoder.tokenizer import INSTEAD, read_vocabulary
from bert_flow_tf.encoder.weights import (
    WORD_EMBEDDINGS,
    BertConfig,
    LazyArrays,
    Pretrained,
    SourceRecord,
    check_weights,
    read_bert_config,
    variable_shapes,
)

# Older versions say mean_tokens and cls_token.
_POOLINGS = LIBRARY_NAMES | {"cls": "paper-cls"}
# A tokenizer's limit of 256 or more is the number of positions, not a length that the model was
# trained for.
_DEFAULT_LENGTH = 512
_LONGEST = 256
# The types of safetensors that a BERT may have.
_TYPES = {
    "F64": "f8",
    "F32": "f4",
    "F16": "f2",
    "BF16": tf.bfloat16.as_numpy_dtype,
    "I64": "i8",
    "I32": "i4",
}


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of Hugging Face models with BERT's architecture.

    Attributes:
      prefix: prefix of the weights' keys, which a file may omit.
      keys: dict from the family's keys in `config.json` to BERT's, where they differ.
      key: function from BERT's key, such as `encoder.layer.0.output.dense.weight`, to the family's;
        None for a weight that the family lacks, which becomes 0.
    """

    prefix: str
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    key: Callable[[str], str | None] = lambda key: key


_DISTILBERT_PARTS = {
    **{f"attention.self.{name}": f"attention.{name[0]}_lin" for name in ("query", "key", "value")},
    **{
        "attention.output.dense": "attention.out_lin",
        "attention.output.LayerNorm": "sa_layer_norm",
    },
    **{
        "intermediate.dense": "ffn.lin1",
        "output.dense": "ffn.lin2",
        "output.LayerNorm": "output_layer_norm",
    },
}


class _Module(msgspec.Struct):
    type: str
    path: str


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
FAMILIES = {
    "bert": Family("bert."),
    "distilbert": Family("distilbert.", _DISTILBERT_KEYS, _distilbert_key),
}


def read_hugging_face_config(path: pathlib.Path) -> tuple[BertConfig, Family]:
    settings = read_json(
        path, folders.ForeignSettings, expected="a model's configuration", versioned=False
    )
    kind = settings.model_type
    if kind not in FAMILIES:
        raise UserError(
            f"{path}: model_type: found {kind}, expected {' or '.join(FAMILIES)}; {INSTEAD}"
        )
    if settings.is_decoder:
        raise UserError(f"{path}: is_decoder: found true, expected an encoder; {INSTEAD}")
    return read_bert_config(path, FAMILIES[kind].keys), FAMILIES[kind]


def read_hugging_face(folder: pathlib.Path, *, hidden_act: str | None = None) -> Pretrained:
    """Read an encoder folder, or another one of Hugging Face or sentence-transformers.

    The weights stay in the file; only other types than float32 are copied into memory.

    Args:
      folder: folder with `config.json`, `vocab.txt` or `tokenizer.json`, and `model.safetensors` or
        its shards. A sentence-transformers folder (with `modules.json`) also gives pooling and
        length.
      hidden_act: activation that replaces the folder's, such as gelu_tanh to compare with TF1 code.
    """
    record = folders.read_encoder_record(folder)
    modules = read_modules(folder)
    bert = folder / (modules[0].path if modules else "")
    path = bert / folders.CONFIG_FILE
    if record is None:
        config, family = read_hugging_face_config(path)
        settings = sentence_transformer(folder, modules) if modules else {}
        vocab, record = _read_texts(bert, config, settings)
    else:
        config, family = read_bert_config(path), FAMILIES["bert"]
        vocab = read_vocabulary(bert / folders.VOCAB_FILE)
    weights = read_hugging_face_weights(bert, config, family, len(vocab))
    config = msgspec.structs.replace(
        config,
        hidden_act=hidden_act or config.hidden_act,
        vocab_size=min(config.vocab_size, len(vocab)),
    )
    return Pretrained(config, vocab, weights, record)


def _read_texts(
    bert: pathlib.Path, config: BertConfig, settings: dict[str, Any]
) -> tuple[list[str], SourceRecord]:
    """Return a folder's word pieces and its record, with these settings."""
    if (adapter := bert / "adapter_config.json").is_file():
        raise UserError(
            f"{adapter}: found an adapter, expected its weights merged into the model's"
        )
    vocab, rules = read_tokenizer(
        bert, folders.read_settings(bert / folders.CONFIG_FILE).tokenizer_class
    )
    length = folders.read_settings(bert / folders.TOKENIZER_CONFIG_FILE).model_max_length
    if length and length < min(config.max_position_embeddings, _LONGEST):
        settings = {"max_seq_length": int(length)} | settings
    return vocab, rules.with_origin("Hugging Face", **settings)


def sentence_transformer(folder: pathlib.Path, modules: Sequence[_Module]) -> dict[str, Any]:
    """Return the fields of `SourceRecord` that a folder of modules has."""
    bert = folder / modules[0].path
    pooling_file = folder / modules[1].path / folders.CONFIG_FILE
    pooling = _read_pooling(pooling_file)
    path = folder / folders.SENTENCE_SETTINGS_FILE
    own = _read_sentence_settings(path)
    has_prompts = any(own.get("prompts", {}).values())
    if has_prompts and not folders.read_settings(pooling_file).include_prompt:
        raise UserError(f"{pooling_file}: include_prompt: found false, expected true")
    own |= {
        "pooling": pooling,
        "max_seq_length": _max_length(bert),
        "normalize": len(modules) == 3,
    }
    with reading(path, "sentence-transformers' settings"):
        msgspec.convert({"kind": "", "do_lower_case": True, **own}, SourceRecord)
    return own


def read_modules(folder: pathlib.Path) -> list[_Module]:
    """Return Transformer, Pooling and perhaps Normalize; none without the file.

    An export of this project has more, so its encoder alone would give other embeddings.
    """
    path = folder / folders.MODULES_FILE
    if not path.is_file():
        return []
    modules = read_json(
        path, list[_Module], expected="sentence-transformers' modules", versioned=False
    )
    if outside := [
        one.path for one in modules if {"..", "/"} & {*pathlib.PurePath(one.path).parts}
    ]:
        raise UserError(f"{path}: path: found {outside[0]}, expected a folder in {folder}")
    if foreign := [
        one.type for one in modules if not one.type.startswith("sentence_transformers.")
    ]:
        raise UserError(
            f"{path}: type: found {foreign[0]}, expected sentence-transformers' own modules; "
            f"{INSTEAD}"
        )
    # The library moves its classes between versions but keeps their names.
    kinds = [module.type.rpartition(".")[2] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UserError(
            f"{path}: found modules {kinds}, expected Transformer, Pooling and Normalize"
        )
    return modules


def _read_pooling(path: pathlib.Path) -> str:
    """Return this project's name of a folder's pooling."""
    mode = folders.read_settings(path).pooling_mode or ""
    if not mode and path.is_file():
        # Older versions have a boolean per mode, such as pooling_mode_mean_tokens.
        flags = read_json(path, dict[str, Any], expected="a pooling's settings", versioned=False)
        mode = [
            name
            for name, value in flags.items()
            if name.startswith("pooling_mode_") and value is True
        ]
    mode = mode if isinstance(mode, str) else " and ".join(mode)
    pooling = _POOLINGS.get(mode.removeprefix("pooling_mode_"))
    if pooling is None:
        expected = "expected mean or cls, or pooling_mode_mean_tokens or pooling_mode_cls_token"
        raise UserError(f"{path}: pooling_mode: found {mode or 'none'}, {expected}")
    return pooling


def _read_sentence_settings(path: pathlib.Path) -> dict[str, Any]:
    """Return the settings of `SENTENCE_SETTINGS` that a file has."""
    found = folders.read_settings(path)
    name = found.default_prompt_name
    known = ("query", "document", *(found.prompts or ()))
    if name is not None and name not in known:
        raise UserError(
            f"{path}: default_prompt_name: found {name}, expected one of the prompts: "
            f"{', '.join(known)}"
        )
    return {name: value for name in folders.SENTENCE_SETTINGS if (value := getattr(found, name))}


def _max_length(bert: pathlib.Path) -> int:
    """Return the most word pieces that sentence-transformers gives a BERT."""
    # Older versions have a file per architecture, such as sentence_distilbert_config.json.
    path = next(
        iter(sorted(bert.glob("sentence_*_config.json"))), bert / folders.BERT_SETTINGS_FILE
    )
    settings = folders.read_settings(path)
    if settings.do_lower_case:
        raise UserError(
            f"{path}: do_lower_case: found true, expected it in {folders.TOKENIZER_FILE}"
        )
    # Without this setting, the library uses the tokenizer's length or the number of positions,
    # whichever is smaller.
    found = settings.max_seq_length
    positions = folders.read_settings(bert / folders.CONFIG_FILE).max_position_embeddings
    if found is not None and not 3 <= found <= (positions or found):
        raise UserError(f"{path}: max_seq_length: found {found!r}, expected 3 to {positions}")
    tokenizer = bert / folders.TOKENIZER_CONFIG_FILE
    lengths = [found] if found else [folders.read_settings(tokenizer).model_max_length, positions]
    return min((length for length in lengths if isinstance(length, int)), default=_DEFAULT_LENGTH)


def hugging_face_name(tf1_name: str) -> str:
    """Return Hugging Face's name, without "bert.", for a TF1 name."""
    name = re.sub(r"^bert/", "", re.sub(r"/layer_(\d+)/", r"/layer/\1/", tf1_name))
    name = re.sub(r"(?<=_embeddings)$|/kernel$|/gamma$", "/weight", name)
    return re.sub(r"/beta$", "/bias", name).replace("/", ".")


def read_hugging_face_weights(
    folder: pathlib.Path,
    config: BertConfig,
    family: Family = FAMILIES["bert"],
    pieces: int | None = None,
) -> Mapping[str, np.ndarray]:
    """Return float32 arrays by TF1 name from a folder's safetensors files.

    A weight that the family lacks and a missing pooler are 0. `pieces` cuts the table of word
    embeddings, which has unused rows in some models.
    """
    path = folder / folders.WEIGHTS_FILE
    paths = [path] if path.is_file() else sorted(folder.glob("model-*-of-*.safetensors"))
    if not paths:
        raise UserError(f"{path}: missing, expected the weights as safetensors")
    tensors: dict[str, Callable[[], np.ndarray]] = {}
    for file in paths:
        for key, read in _readers(file).items():
            # Files converted from TF1 checkpoints have the names gamma and beta.
            key = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", key)).removeprefix(
                family.prefix
            )
            tensors[key] = read
    has_pooler = any(key.startswith("pooler.") for key in tensors)
    shapes = variable_shapes(config)
    keys = {
        name: family.key(hugging_face_name(name))
        for name in shapes
        if has_pooler or "/pooler/" not in name
    }
    # Hugging Face's kernels are transposed, [out, in].
    stored = {
        key: shapes[name][:: -1 if name.endswith("/kernel") else 1]
        for name, key in keys.items()
        if key
    }
    # As transformers does, ignore other weights, such as heads.
    found = LazyArrays({key: read for key, read in tensors.items() if key in stored})
    check_weights(found, stored, paths[0], "this configuration")

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
                np.memmap,
                file,
                _TYPES[one["dtype"]],
                "r",
                8 + size + one["data_offsets"][0],
                tuple(one["shape"]),
            )
            for name, one in header.items()
        }
