"""The shape of a BERT, read from a TF1 `bert_config.json`, or from a Hugging Face `config.json` (see `families`)."""

import os
from typing import Annotated, Literal

import msgspec

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import read_json

# "gelu" is the tanh approximation in the TF1 code and the exact, erf form at Hugging Face: the names here say which.
_OTHERS = {name: name for name in ("relu", "tanh", "linear")}
_TF1_ACTIVATIONS = {"gelu_tanh": "gelu_tanh", "gelu_erf": "gelu_erf", **_OTHERS, "gelu": "gelu_tanh"}
HUGGING_FACE_ACTIVATIONS = {
    "gelu": "gelu_erf",
    **dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_tanh"),
    **_OTHERS,
}
LAYER_NORM_EPS = 1e-12
Count = Annotated[int, msgspec.Meta(ge=1)]
# Without limits, a vocabulary's unused pieces and the names of the layers' variables alone would fill the memory.
Pieces = Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]
Layers = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Rate = Annotated[float, msgspec.Meta(ge=0, lt=1)]


class BertConfig(msgspec.Struct, frozen=True):
    """Shape, activation and dropout rates of a BERT. `hidden_act` is gelu_tanh, gelu_erf, relu, tanh or linear."""

    vocab_size: Pieces
    hidden_size: Count
    num_hidden_layers: Layers
    num_attention_heads: Count
    intermediate_size: Count
    max_position_embeddings: Count
    type_vocab_size: Count
    hidden_act: str
    hidden_dropout_prob: Rate
    attention_probs_dropout_prob: Rate
    initializer_range: Rate = 0.02


class _File(BertConfig, frozen=True):
    """What a file may say besides, which only has one value that can be converted."""

    position_embedding_type: Literal["absolute"] = "absolute"
    layer_norm_eps: float = LAYER_NORM_EPS


class _Kind(msgspec.Struct):
    model_type: str = "bert"


def read_tf1_config(path: str | os.PathLike) -> BertConfig:
    """`BertConfig` of the `bert_config.json` of a TF1 checkpoint.

    Raises:
      UserError: the file cannot be read, it is no BERT with absolute positions, or a field is missing or has a value
        that no BERT here has.
    """
    if (kind := model_type(path)) != "bert":
        raise UserError(f"{path}: model_type: found {kind}, expected bert")
    return checked_config(path, read_bert(path), _TF1_ACTIVATIONS)


def read_bert(path: str | os.PathLike) -> BertConfig:
    """`BertConfig` of a file with BERT's keys; `hidden_act` is as the file has it."""
    file = read_json(path, _File, expected="a BERT with absolute positions", versioned=False)
    if file.layer_norm_eps != LAYER_NORM_EPS:
        raise UserError(f"{path}: layer_norm_eps: found {file.layer_norm_eps!r}, expected {LAYER_NORM_EPS}")
    return msgspec.convert(file, BertConfig, from_attributes=True)


def model_type(path: str | os.PathLike) -> str:
    """The kind of model that a Hugging Face `config.json` is of; "bert" where it does not say."""
    return read_json(path, _Kind, expected="a model's configuration", versioned=False).model_type


def checked_config(path: str | os.PathLike, config: BertConfig, activations: dict[str, str]) -> BertConfig:
    """The configuration that a file holds, its activation as it is called here; `activations` are the file's names.

    Raises:
      UserError: there is no such activation, or the heads do not share out the width.
    """
    if config.hidden_act not in activations:
        raise UserError(f"{path}: hidden_act: found {config.hidden_act!r}, expected one of {', '.join(activations)}")
    if config.hidden_size % config.num_attention_heads:
        raise UserError(
            f"{path}: hidden_size: found {config.hidden_size}, expected a multiple of num_attention_heads "
            f"{config.num_attention_heads}"
        )
    return msgspec.structs.replace(config, hidden_act=activations[config.hidden_act])
