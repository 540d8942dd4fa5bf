"""A BERT's configuration, and its variables' names and shapes."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import read_json
from bert_flow_tf.files.reading import AnyPath, reading
from bert_flow_tf.runs.record import Positive

LAYER_NORM_EPS = 1e-12
_Rate = Annotated[float, msgspec.Meta(ge=0, lt=1)]
WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
# The keys are the names in TF1 and Hugging Face's BERT; the values are those in tf-models and in DistilBERT.
LAYER_PARTS = {
    "attention/self/query": ("self_attention/query", "attention.q_lin"),
    "attention/self/key": ("self_attention/key", "attention.k_lin"),
    "attention/self/value": ("self_attention/value", "attention.v_lin"),
    "attention/output/dense": ("self_attention/attention_output", "attention.out_lin"),
    "attention/output/LayerNorm": ("self_attention_layer_norm", "sa_layer_norm"),
    "intermediate/dense": ("intermediate", "ffn.lin1"),
    "output/dense": ("output", "ffn.lin2"),
    "output/LayerNorm": ("output_layer_norm", "output_layer_norm"),
}


class BertConfig(msgspec.Struct, frozen=True):
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
    """A `BertConfig` with types that accept only supported values."""

    hidden_act: Literal["gelu_tanh", "gelu_erf", "relu", "tanh", "linear"]
    position_embedding_type: Literal["absolute"] = "absolute"
    layer_norm_eps: Annotated[float, msgspec.Meta(ge=LAYER_NORM_EPS, le=LAYER_NORM_EPS)] = LAYER_NORM_EPS


def read_bert_config(path: AnyPath, keys: Mapping[str, str] | None = None, *, gelu: str = "gelu_erf") -> BertConfig:
    """Read a `BertConfig`; raise `UserError` for unsupported values.

    Args:
      keys: dict from the file's keys to BERT's, where they differ.
      gelu: meaning of "gelu" in the file: exact for Hugging Face, the tanh approximation for TF1.
    """
    found = read_json(path, dict, expected="a BERT's configuration", versioned=False)
    fields = {"type_vocab_size": 1} | {(keys or {}).get(key, key): value for key, value in found.items()}
    activations = {"gelu": gelu} | dict.fromkeys(("gelu_new", "gelu_fast", "gelu_pytorch_tanh"), "gelu_tanh")
    with reading(path, "a BERT with absolute positions"):
        act = fields.get("hidden_act", "")
        fields["hidden_act"] = activations.get(act, act)
        return msgspec.convert(msgspec.convert(fields, _BertFile), BertConfig, from_attributes=True)


def read_tf1_config(path: AnyPath) -> BertConfig:
    return read_bert_config(path, gelu="gelu_tanh")


def keras_names(num_hidden_layers: int) -> dict[str, str]:
    """Return tf-models' variable names by TF1 name."""
    names = {
        WORD_EMBEDDINGS: "word_embeddings/embeddings",
        "bert/embeddings/position_embeddings": "position_embedding/embeddings",
        "bert/embeddings/token_type_embeddings": "type_embeddings/embeddings",
    }
    parts = {"bert/embeddings/LayerNorm": "embeddings/layer_norm", "bert/pooler/dense": "pooler_transform"}
    for i in range(num_hidden_layers):
        for part, (keras_part, _) in LAYER_PARTS.items():
            parts[f"bert/encoder/layer_{i}/{part}"] = f"transformer/layer_{i}/{keras_part}"
    for part, keras_part in parts.items():
        kinds = ("gamma", "beta") if part.endswith("LayerNorm") else ("kernel", "bias")
        names |= {f"{part}/{kind}": f"{keras_part}/{kind}" for kind in kinds}
    return names


def num_layers(names: Iterable[str]) -> int:
    """Return the number of layers in tf-models' variable names."""
    return len({match[1] for name in names if (match := re.match(r"transformer/layer_(\d+)/", name))})


def variable_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a BERT's variables by TF1 name."""
    width, inner = config.hidden_size, config.intermediate_size
    rows = config.vocab_size, config.max_position_embeddings, config.type_vocab_size
    tables = dict(zip(("word_embeddings", "position_embeddings", "token_type_embeddings"), rows, strict=True))

    def shape(name: str) -> tuple[int, ...]:
        if name.endswith("_embeddings"):
            return tables[name.rpartition("/")[2]], width
        outputs = inner if "/intermediate/" in name else width
        inputs = inner if re.search(r"\d/output/", name) else width
        return (inputs, outputs) if name.endswith("/kernel") else (outputs,)

    return {name: shape(name) for name in keras_names(config.num_hidden_layers)}


def to_tf1_shape(tf1_name: str, array: np.ndarray) -> np.ndarray:
    """Reshape a tf-models variable as in TF1, without an axis for heads."""
    if not tf1_name.startswith("bert/encoder/"):
        return array
    if not tf1_name.endswith("/kernel"):
        return array.reshape(-1)
    # The heads come first in the kernel of attention's output, and last in the other kernels.
    return array.reshape(-1, array.shape[-1]) if "attention/output" in tf1_name else array.reshape(len(array), -1)


def tf1_arrays(variables: Mapping[str, Any], model: str) -> dict[str, np.ndarray]:
    """Return the arrays of tf-models' variables by TF1 name."""
    names = keras_names(num_layers(variables))
    if different := variables.keys() ^ set(names.values()):
        raise UserError(f"{model}: variable {min(different)}: missing or unknown, expected tf-models' BERT")
    return {name: to_tf1_shape(name, variables[keras_name].numpy()) for name, keras_name in names.items()}


def check_arrays(
    arrays: Mapping[str, np.ndarray], shapes: Mapping[str, Sequence[int]], source: str | os.PathLike, model: str
) -> None:
    """Raise `UserError` unless the arrays are finite and have these shapes."""
    for problem, names in (("missing", shapes.keys() - arrays.keys()), ("unexpected", arrays.keys() - shapes.keys())):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise UserError(f"{source}: variable {min(names)}{more}: {problem}, expected those of {model}")
    for name, shape in shapes.items():
        if (found := np.shape(arrays[name])) != tuple(shape):
            raise UserError(f"{source}: variable {name}: found shape {list(found)}, expected {list(shape)}")
        if not np.isfinite(arrays[name]).all():
            raise UserError(f"{source}: variable {name} holds NaN or infinity, expected finite numbers")
