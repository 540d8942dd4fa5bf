"""The shape of a BERT, read from a TF1 `bert_config.json` or a Hugging Face `config.json`."""

import os
from typing import Annotated, Literal

import msgspec

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import read_json

# "gelu" is the tanh approximation in the TF1 code and the exact, erf form at Hugging Face: the names here say which.
_OTHERS = {name: name for name in ("relu", "tanh", "linear")}
_TF1_ACTIVATIONS = {"gelu_tanh": "gelu_tanh", "gelu_erf": "gelu_erf", **_OTHERS, "gelu": "gelu_tanh"}
_HUGGING_FACE_ACTIVATIONS = {
    "gelu": "gelu_erf",
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_tanh"),
    **_OTHERS,
}
_LAYER_NORM_EPS = 1e-12
# Kinds that people ask for, and what is missing for them here.
_MISSING = {
    "roberta": "byte-level BPE, its tokenizer, is not among TensorFlow's operations",
    "xlm-roberta": "its positions begin at 2 and its tokenizer is SentencePiece, which are not converted",
    "mpnet": "its attention has relative positions",
    "albert": "its layers share weights and its tokenizer is SentencePiece",
    "electra": "its embeddings are narrower than its layers",
    "modernbert": "its positions are rotations and its tokenizer is byte-level BPE",
}
_Count = Annotated[int, msgspec.Meta(ge=1)]
# Without limits, a vocabulary's unused pieces and the names of the layers' variables alone would fill the memory.
_Pieces = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
_Layers = Annotated[int, msgspec.Meta(ge=1, le=1000)]
_Rate = Annotated[float, msgspec.Meta(ge=0, lt=1)]


class BertConfig(msgspec.Struct, frozen=True):
    """Shape, activation and dropout rates of a BERT. `hidden_act` is gelu_tanh, gelu_erf, relu, tanh or linear."""

    vocab_size: _Pieces
    hidden_size: _Count
    num_hidden_layers: _Layers
    num_attention_heads: _Count
    intermediate_size: _Count
    max_position_embeddings: _Count
    type_vocab_size: _Count
    hidden_act: str
    hidden_dropout_prob: _Rate
    attention_probs_dropout_prob: _Rate
    initializer_range: _Rate = 0.02


class _File(BertConfig, frozen=True):
    """What a file may say besides, which only has one value that can be converted."""

    model_type: Literal["bert"] = "bert"
    position_embedding_type: Literal["absolute"] = "absolute"
    layer_norm_eps: float = _LAYER_NORM_EPS


class _DistilBert(msgspec.Struct, frozen=True):
    """Hugging Face's names for the shape of a DistilBERT, which is a BERT without token types and without a pooler."""

    vocab_size: _Pieces
    dim: _Count
    n_layers: _Layers
    n_heads: _Count
    hidden_dim: _Count
    max_position_embeddings: _Count = 512
    activation: str = "gelu"
    dropout: _Rate = 0.1
    attention_dropout: _Rate = 0.1
    initializer_range: _Rate = 0.02

    def as_bert(self) -> BertConfig:
        return BertConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.dim,
            num_hidden_layers=self.n_layers,
            num_attention_heads=self.n_heads,
            intermediate_size=self.hidden_dim,
            max_position_embeddings=self.max_position_embeddings,
            type_vocab_size=1,
            hidden_act=self.activation,
            hidden_dropout_prob=self.dropout,
            attention_probs_dropout_prob=self.attention_dropout,
            initializer_range=self.initializer_range,
        )


class _Kind(msgspec.Struct):
    model_type: str = "bert"


def read_tf1_config(path: str | os.PathLike) -> BertConfig:
    """`BertConfig` of the `bert_config.json` of a TF1 checkpoint.

    Raises:
      UserError: the file cannot be read, it is no BERT with absolute positions, or a field is missing or has a value
        that no BERT here has.
    """
    return _read(path, _TF1_ACTIVATIONS)


def read_hugging_face_config(path: str | os.PathLike) -> BertConfig:
    """`BertConfig` of the Hugging Face `config.json` of a BERT or DistilBERT; errors are those of `read_tf1_config`."""
    kind = read_json(path, _Kind, expected="a model's configuration", versioned=False).model_type
    if kind in _MISSING:
        raise UserError(f"{path}: model_type: found {kind}, expected bert or distilbert: {_MISSING[kind]}")
    if kind == "distilbert":
        file = read_json(path, _DistilBert, expected="a DistilBERT", versioned=False)
        return _checked(path, file.as_bert(), _HUGGING_FACE_ACTIVATIONS)
    return _read(path, _HUGGING_FACE_ACTIVATIONS)


def _read(path: str | os.PathLike, activations: dict[str, str]) -> BertConfig:
    file = read_json(path, _File, expected="a BERT with absolute positions", versioned=False)
    if file.layer_norm_eps != _LAYER_NORM_EPS:
        raise UserError(f"{path}: layer_norm_eps: found {file.layer_norm_eps!r}, expected {_LAYER_NORM_EPS}")
    return _checked(path, msgspec.convert(file, BertConfig, from_attributes=True), activations)


def _checked(path: str | os.PathLike, config: BertConfig, activations: dict[str, str]) -> BertConfig:
    if config.hidden_act not in activations:
        raise UserError(f"{path}: hidden_act: found {config.hidden_act!r}, expected one of {', '.join(activations)}")
    if config.hidden_size % config.num_attention_heads:
        raise UserError(
            f"{path}: hidden_size: found {config.hidden_size}, expected a multiple of num_attention_heads "
            f"{config.num_attention_heads}"
        )
    return msgspec.structs.replace(config, hidden_act=activations[config.hidden_act])
