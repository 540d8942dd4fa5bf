"""A BERT's shape, read from a TF1 `bert_config.json`; `families` reads Hugging Face's `config.json`."""

import os
from typing import Annotated, Literal

import msgspec

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import read_json
from bert_flow_tf.runs.record import Positive

# "gelu" is the tanh approximation in the TF1 code and the exact, erf form at Hugging Face: the names here say which.
_OTHERS = {name: name for name in ("relu", "tanh", "linear")}
_TF1_ACTIVATIONS = {"gelu_tanh": "gelu_tanh", "gelu_erf": "gelu_erf", **_OTHERS, "gelu": "gelu_tanh"}
_TANH_GELUS = dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_tanh")
HUGGING_FACE_ACTIVATIONS = {"gelu": "gelu_erf", **_TANH_GELUS, **_OTHERS}
LAYER_NORM_EPS = 1e-12
Rate = Annotated[float, msgspec.Meta(ge=0, lt=1)]


class BertConfig(msgspec.Struct, frozen=True):
    """Shape, activation and dropout rates of a BERT. `hidden_act` is gelu_tanh, gelu_erf, relu, tanh or linear."""

    vocab_size: Positive
    hidden_size: Positive
    num_hidden_layers: Positive
    num_attention_heads: Positive
    intermediate_size: Positive
    max_position_embeddings: Positive
    type_vocab_size: Positive
    hidden_act: str
    hidden_dropout_prob: Rate
    attention_probs_dropout_prob: Rate
    initializer_range: Rate = 0.02


class BertFile(BertConfig, frozen=True):
    """A configuration file with BERT's keys, and those that must have one value."""

    position_embedding_type: Literal["absolute"] = "absolute"
    layer_norm_eps: float = LAYER_NORM_EPS


def read_tf1_config(path: str | os.PathLike) -> BertConfig:
    """Return the `BertConfig` of a TF1 `bert_config.json`; raise `UserError` for values that no BERT here has."""
    return checked_config(path, read_bert(path), _TF1_ACTIVATIONS)


def read_bert(path: str | os.PathLike, file_type: type[msgspec.Struct] = BertFile) -> BertConfig:
    """Return the `BertConfig` of a file whose keys `file_type` maps to its attributes; keep the file's activation."""
    file = read_json(path, file_type, expected="a BERT with absolute positions", versioned=False)
    if (eps := getattr(file, "layer_norm_eps", LAYER_NORM_EPS)) != LAYER_NORM_EPS:
        raise UserError(f"{path}: layer_norm_eps: found {eps!r}, expected {LAYER_NORM_EPS}")
    return msgspec.convert(file, BertConfig, from_attributes=True)


def checked_config(path: str | os.PathLike, config: BertConfig, activations: dict[str, str]) -> BertConfig:
    """Return the configuration with its activation renamed by `activations`, from the file's names to ours.

    Raises:
      UserError: the activation is unknown, or the heads do not divide the width.
    """
    act, width, heads = config.hidden_act, config.hidden_size, config.num_attention_heads
    if act not in activations:
        raise UserError(f"{path}: hidden_act: found {act!r}, expected one of {', '.join(activations)}")
    if width % heads:
        raise UserError(f"{path}: hidden_size: found {width}, expected a multiple of num_attention_heads {heads}")
    return msgspec.structs.replace(config, hidden_act=activations[act])
