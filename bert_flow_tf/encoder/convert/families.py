"""The families of Hugging Face's encoders that are a BERT: how each says its shape, and what it calls its weights."""

import dataclasses
import os
import re
from collections.abc import Callable

import msgspec

from bert_flow_tf.encoder.convert.bert_config import (
    HUGGING_FACE_ACTIVATIONS,
    BertConfig,
    Count,
    Layers,
    Pieces,
    Rate,
    checked_config,
    model_type,
    read_bert,
)
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import read_json

# Kinds that people ask for, and what is missing for them here.
_MISSING = {
    "roberta": "byte-level BPE, its tokenizer, is not among TensorFlow's operations",
    "xlm-roberta": "its positions begin at 2 and its tokenizer is SentencePiece, which are not converted",
    "mpnet": "its attention has relative positions",
    "albert": "its layers share weights and its tokenizer is SentencePiece",
    "electra": "its embeddings are narrower than its layers",
    "modernbert": "its positions are rotations and its tokenizer is byte-level BPE",
}
_DISTILBERT_WEIGHTS = {
    "attention.self.query": "attention.q_lin",
    "attention.self.key": "attention.k_lin",
    "attention.self.value": "attention.v_lin",
    "attention.output.dense": "attention.out_lin",
    "attention.output.LayerNorm": "sa_layer_norm",
    "intermediate.dense": "ffn.lin1",
    "output.dense": "ffn.lin2",
    "output.LayerNorm": "output_layer_norm",
}


@dataclasses.dataclass(frozen=True)
class Family:
    """One family of encoders.

    Attributes:
      prefix: of the weights' keys, which files may leave out.
      extras: regular expression of the keys, without the prefix, of what is no part of the encoder.
      config: from the path of its `config.json` to the `BertConfig`, whose `hidden_act` is as Hugging Face calls it.
      key: from a BERT's key, such as `encoder.layer.0.output.dense.weight`, to this family's; None for a weight that
        the family does not have, which is then 0. A pooler may be missing in any family.
    """

    prefix: str
    extras: str
    config: Callable[[str | os.PathLike], BertConfig] = read_bert
    key: Callable[[str], str | None] = lambda key: key


class _DistilBert(msgspec.Struct, frozen=True):
    """Hugging Face's names for the shape of a DistilBERT, which is a BERT without token types and without a pooler."""

    vocab_size: Pieces
    dim: Count
    n_layers: Layers
    n_heads: Count
    hidden_dim: Count
    max_position_embeddings: Count = 512
    activation: str = "gelu"
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.1
    initializer_range: Rate = 0.02


def _distilbert_config(path: str | os.PathLike) -> BertConfig:
    file = read_json(path, _DistilBert, expected="a DistilBERT", versioned=False)
    return BertConfig(
        vocab_size=file.vocab_size,
        hidden_size=file.dim,
        num_hidden_layers=file.n_layers,
        num_attention_heads=file.n_heads,
        intermediate_size=file.hidden_dim,
        max_position_embeddings=file.max_position_embeddings,
        type_vocab_size=1,
        hidden_act=file.activation,
        hidden_dropout_prob=file.dropout,
        attention_probs_dropout_prob=file.attention_dropout,
        initializer_range=file.initializer_range,
    )


def _distilbert_key(key: str) -> str | None:
    if key == "embeddings.token_type_embeddings.weight":
        return None
    layer = re.fullmatch(r"encoder\.(layer\.\d+)\.(.+)\.(weight|bias)", key)
    return f"transformer.{layer[1]}.{_DISTILBERT_WEIGHTS[layer[2]]}.{layer[3]}" if layer else key


# By `model_type` of `config.json`. The extras are heads of pre-training, and a constant that older versions save.
FAMILIES = {
    "bert": Family("bert.", r"cls\..*|embeddings\.position_ids"),
    "distilbert": Family(
        "distilbert.",
        r"vocab_(transform|layer_norm|projector)\..*|embeddings\.position_ids",
        config=_distilbert_config,
        key=_distilbert_key,
    ),
}


def family_of(path: str | os.PathLike) -> Family:
    """The family that a Hugging Face `config.json` names; a `UserError` for one that is not converted."""
    kind = model_type(path)
    if kind not in FAMILIES:
        reason = f": {_MISSING[kind]}" if kind in _MISSING else ""
        raise UserError(f"{path}: model_type: found {kind}, expected {' or '.join(FAMILIES)}{reason}")
    return FAMILIES[kind]


def read_hugging_face_config(path: str | os.PathLike) -> BertConfig:
    """`BertConfig` of a Hugging Face `config.json`; errors are those of `bert_config.read_tf1_config`."""
    return checked_config(path, family_of(path).config(path), HUGGING_FACE_ACTIVATIONS)
