"""The variables of a BERT by their TF1 names: which there are, of what shape, and where tf-models keeps them."""

import os
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_flow_tf.encoder.convert.bert_config import BertConfig
from bert_flow_tf.errors import UserError

WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
_LAYER_NORM = ("gamma", "beta")


def variable_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """dict of TF1 name -> shape of all variables of a BERT of this `BertConfig`."""
    width, inner = config.hidden_size, config.intermediate_size
    rows = {
        WORD_EMBEDDINGS: config.vocab_size,
        "bert/embeddings/position_embeddings": config.max_position_embeddings,
        "bert/embeddings/token_type_embeddings": config.type_vocab_size,
    }

    def shape(name: str) -> tuple[int, ...]:
        if name in rows:
            return rows[name], width
        outputs = inner if "/intermediate/" in name else width
        if not name.endswith("/kernel"):
            return (outputs,)
        return inner if re.search(r"\d/output/", name) else width, outputs

    return {name: shape(name) for name in keras_names(config.num_hidden_layers)}


def keras_names(num_hidden_layers: int) -> dict[str, str]:
    """dict of TF1 name -> name of that variable in tf-models' `BertEncoder`, for all variables of so many layers."""
    names = {
        WORD_EMBEDDINGS: "word_embeddings/embeddings",
        "bert/embeddings/position_embeddings": "position_embedding/embeddings",
        "bert/embeddings/token_type_embeddings": "type_embeddings/embeddings",
        "bert/pooler/dense/kernel": "pooler_transform/kernel",
        "bert/pooler/dense/bias": "pooler_transform/bias",
    }
    names |= {f"bert/embeddings/LayerNorm/{part}": f"embeddings/layer_norm/{part}" for part in _LAYER_NORM}
    dense = {f"attention/self/{part}": f"self_attention/{part}" for part in ("query", "key", "value")} | {
        "attention/output/dense": "self_attention/attention_output",
        "intermediate/dense": "intermediate",
        "output/dense": "output",
    }
    norms = {"attention/output": "self_attention_layer_norm", "output": "output_layer_norm"}
    for i in range(num_hidden_layers):
        layer, keras_layer = f"bert/encoder/layer_{i}", f"transformer/layer_{i}"
        for part, keras_part in dense.items():
            names |= {f"{layer}/{part}/{kind}": f"{keras_layer}/{keras_part}/{kind}" for kind in ("kernel", "bias")}
        for part, keras_part in norms.items():
            names |= {f"{layer}/{part}/LayerNorm/{kind}": f"{keras_layer}/{keras_part}/{kind}" for kind in _LAYER_NORM}
    return names


def to_tf1_shape(tf1_name: str, array: np.ndarray) -> np.ndarray:
    """The array of one of tf-models' variables in the shape of TF1's, which has no axis of heads."""
    if not tf1_name.startswith("bert/encoder/"):
        return array
    if not tf1_name.endswith("/kernel"):
        return array.reshape(-1)
    # The heads are what the output projection of attention starts from, and what the other kernels end in.
    return array.reshape(-1, array.shape[-1]) if "attention/output" in tf1_name else array.reshape(len(array), -1)


def check_variables(
    found_shapes: Mapping[str, Sequence[int]],
    config: BertConfig,
    source: str | os.PathLike,
    name_in_source: Callable[[str], str] = lambda name: name,
) -> None:
    """Does nothing where a checkpoint holds the variables that the configuration asks for.

    Errors call the checkpoint `source`, and a variable by what `name_in_source` gives for its TF1 name.

    Raises:
      UserError: a variable is missing, left over or of another shape; it names the variables.
    """
    expected = variable_shapes(config)
    missing = [name_in_source(name) for name in expected if name not in found_shapes]
    if missing:
        raise UserError(
            f"{source}: {_listed('missing', missing)}, expected {len(expected)} variables for this configuration"
        )
    left_over = [name_in_source(name) for name in sorted(found_shapes) if name not in expected]
    if left_over:
        raise UserError(
            f"{source}: {_listed('left over', left_over)}, expected the configuration's {len(expected)} variables only"
        )
    for name, shape in expected.items():
        if tuple(found_shapes[name]) != shape:
            raise UserError(
                f"{source}: variable {name_in_source(name)}: found shape {list(found_shapes[name])}, expected "
                f"{list(shape)} by the configuration"
            )


def check_finite(weights: Mapping[str, np.ndarray], source: str) -> None:
    """Raises `UserError`, naming the variable, where an array of the dict `weights` holds NaN or infinity."""
    for name, value in weights.items():
        if not np.isfinite(value).all():
            raise UserError(f"{source}: variable {name} holds NaN or infinity, expected finite numbers")


def _listed(what: str, names: list[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)} variable{'s' if len(names) > 1 else ''} {what}: {', '.join(names[:most])}{more}"
