"""Hugging Face's families of encoders that are a BERT: their configuration and the names of their weights."""

import dataclasses
import os
import re
from collections.abc import Callable

import msgspec

from bert_flow_tf.encoder.convert import bert_config
from bert_flow_tf.encoder.convert.bert_config import BertConfig, Rate, read_bert
from bert_flow_tf.encoder.convert.weights import LAYER_PARTS
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import read_json
from bert_flow_tf.runs.record import Positive


@dataclasses.dataclass(frozen=True)
class Family:
    """One family of encoders.

    Attributes:
      prefix: prefix of the weights' keys, which files may leave out.
      extras: regular expression of the keys, without the prefix, that are no part of the encoder.
      config: function from the path of `config.json` to the `BertConfig`, with Hugging Face's name in `hidden_act`.
      key: function from a BERT's key, such as `encoder.layer.0.output.dense.weight`, to this family's; None for a
        weight that the family does not have, which is then 0. A pooler may be missing in any family.
    """

    prefix: str
    extras: str
    config: Callable[[str | os.PathLike], BertConfig] = read_bert
    key: Callable[[str], str | None] = lambda key: key


class _DistilBert(msgspec.Struct, frozen=True):
    """The configuration of a DistilBERT, a BERT without token types and without a pooler, under its own keys."""

    vocab_size: Positive
    hidden_size: Positive = msgspec.field(name="dim")
    num_hidden_layers: Positive = msgspec.field(name="n_layers")
    num_attention_heads: Positive = msgspec.field(name="n_heads")
    intermediate_size: Positive = msgspec.field(name="hidden_dim")
    max_position_embeddings: Positive = 512
    type_vocab_size: Positive = 1
    hidden_act: str = msgspec.field(default="gelu", name="activation")
    hidden_dropout_prob: Rate = msgspec.field(default=0.1, name="dropout")
    attention_probs_dropout_prob: Rate = msgspec.field(default=0.1, name="attention_dropout")
    initializer_range: Rate = 0.02


def _distilbert_key(key: str) -> str | None:
    if key == "embeddings.token_type_embeddings.weight":
        return None
    layer = re.fullmatch(r"encoder\.(layer\.\d+)\.(.+)\.(weight|bias)", key)
    return f"transformer.{layer[1]}.{LAYER_PARTS[layer[2].replace('.', '/')][1]}.{layer[3]}" if layer else key


# By `model_type` of `config.json`. The extras are heads of pre-training, and a constant that older versions save.
FAMILIES = {
    "bert": Family("bert.", r"cls\..*|embeddings\.position_ids"),
    "distilbert": Family(
        "distilbert.",
        r"vocab_(transform|layer_norm|projector)\..*|embeddings\.position_ids",
        config=lambda path: read_bert(path, _DistilBert),
        key=_distilbert_key,
    ),
}


def family_of(path: str | os.PathLike) -> Family:
    """Return the family that a Hugging Face `config.json` names; raise `UserError` for an unknown one."""
    kind = read_json(path, dict, expected="a model's configuration", versioned=False).get("model_type", "bert")
    if kind not in FAMILIES:
        raise UserError(f"{path}: model_type: found {kind}, expected {' or '.join(FAMILIES)}")
    return FAMILIES[kind]


def read_hugging_face_config(path: str | os.PathLike) -> BertConfig:
    """Return the `BertConfig` of a Hugging Face `config.json`; errors are those of `read_tf1_config`."""
    return bert_config.checked_config(path, family_of(path).config(path), bert_config.HUGGING_FACE_ACTIVATIONS)
