"""A BERT's shape, from a TF1 `bert_config.json` or Hugging Face's `config.json`, and the families of BERTs there."""

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import msgspec

from bert_flow_tf.encoder.convert.weights import LAYER_PARTS
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import read_json
from bert_flow_tf.files.reading import reading
from bert_flow_tf.runs.record import Positive

LAYER_NORM_EPS = 1e-12
_Path = str | os.PathLike
_Rate = Annotated[float, msgspec.Meta(ge=0, lt=1)]


class BertConfig(msgspec.Struct, frozen=True):
    """Shape, activation and dropout rates of a BERT."""

    vocab_size: Positive
    hidden_size: Positive
    num_hidden_layers: Positive
    num_attention_heads: Positive
    intermediate_size: Positive
    max_position_embeddings: Positive
    type_vocab_size: Positive
    hidden_act: str
    hidden_dropout_prob: _Rate
    attention_probs_dropout_prob: _Rate
    initializer_range: _Rate = 0.02


class _BertFile(BertConfig, frozen=True):
    """A configuration file with BERT's keys, and those that must have one value."""

    hidden_act: Literal["gelu_tanh", "gelu_erf", "relu", "tanh", "linear"]
    position_embedding_type: Literal["absolute"] = "absolute"
    layer_norm_eps: Annotated[float, msgspec.Meta(ge=LAYER_NORM_EPS, le=LAYER_NORM_EPS)] = LAYER_NORM_EPS


# DistilBERT's keys for the same; it has no token types, and no pooler.
_DISTILBERT_KEYS = {
    **{"dim": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads"},
    **{"hidden_dim": "intermediate_size", "activation": "hidden_act"},
    **{"dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob"},
}


def read_bert(path: _Path, keys: Mapping[str, str] | None = None, *, gelu: str = "gelu_erf") -> BertConfig:
    """Return the `BertConfig` of a file; raise `UserError` for values that no BERT here has.

    Args:
      keys: the file's names of BERT's keys.
      gelu: activation that the file calls "gelu": the exact one at Hugging Face, the tanh approximation in TF1's code.
    """
    found = read_json(path, dict, expected="a BERT's configuration", versioned=False)
    fields = {"type_vocab_size": 1} | {(keys or {}).get(key, key): value for key, value in found.items()}
    activations = {"gelu": gelu} | dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_tanh")
    with reading(path, "a BERT with absolute positions"):
        act = fields.get("hidden_act", "")
        fields["hidden_act"] = activations.get(act, act)
        return msgspec.convert(msgspec.convert(fields, _BertFile), BertConfig, from_attributes=True)


@dataclasses.dataclass(frozen=True)
class Family:
    """One of Hugging Face's families of encoders that are a BERT.

    Attributes:
      prefix: prefix of the weights' keys, which files may leave out.
      extras: regular expression of the keys, without the prefix, that are no part of the encoder.
      config: function from the path of `config.json` to the `BertConfig`.
      key: function from a BERT's key, such as `encoder.layer.0.output.dense.weight`, to this family's; None for a
        weight that the family does not have, which is then 0. A pooler may be missing in any family.
    """

    prefix: str
    extras: str
    config: Callable[[_Path], BertConfig] = read_bert
    key: Callable[[str], str | None] = lambda key: key


def _distilbert_key(key: str) -> str | None:
    if key == "embeddings.token_type_embeddings.weight":
        return None
    layer = re.fullmatch(r"encoder\.(layer\.\d+)\.(.+)\.(weight|bias)", key)
    return f"transformer.{layer[1]}.{LAYER_PARTS[layer[2].replace('.', '/')][1]}.{layer[3]}" if layer else key


# By `model_type` of `config.json`. The extras are heads of pre-training, and a constant that older versions save.
_DISTILBERT_EXTRAS = r"vocab_(transform|layer_norm|projector)\..*|embeddings\.position_ids"
FAMILIES = {
    "bert": Family("bert.", r"cls\..*|embeddings\.position_ids"),
    "distilbert": Family(
        "distilbert.", _DISTILBERT_EXTRAS, lambda path: read_bert(path, _DISTILBERT_KEYS), _distilbert_key
    ),
}


def read_tf1_config(path: _Path) -> BertConfig:
    """Return the `BertConfig` of a TF1 `bert_config.json`; see `read_bert`."""
    return read_bert(path, gelu="gelu_tanh")


def read_hugging_face_config(path: _Path) -> tuple[BertConfig, Family]:
    """Return the `BertConfig` and the family of a Hugging Face `config.json`; errors are `read_bert`'s."""
    kind = read_json(path, dict, expected="a model's configuration", versioned=False).get("model_type", "bert")
    if kind not in FAMILIES:
        raise UserError(f"{path}: model_type: found {kind}, expected {' or '.join(FAMILIES)}")
    return FAMILIES[kind].config(path), FAMILIES[kind]
