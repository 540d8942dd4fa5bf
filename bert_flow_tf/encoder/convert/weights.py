"""The variables of a BERT by their TF1 names: which there are, of what shape, and where tf-models keeps them."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_flow_tf.encoder.convert.bert_config import BertConfig
from bert_flow_tf.errors import UserError

WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
_LAYER_NORM = ("gamma", "beta")
_MOST_LISTED = 5  # names in an error


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


def tf1_arrays(variables: Mapping[str, Any], holder: str | os.PathLike) -> dict[str, np.ndarray]:
    """dict of TF1 name -> array of the variables of tf-models' BERT, which are there by name; `holder` is for errors.

    Raises:
      UserError: a variable is missing, or no BERT has it.
    """
    others, arrays = dict(variables), {}
    for tf1_name, keras_name in keras_names(num_layers(variables)).items():
        if keras_name not in others:
            raise UserError(f"{holder}: has no variable {keras_name}, expected tf-models' BERT")
        arrays[tf1_name] = to_tf1_shape(tf1_name, others.pop(keras_name).numpy())
    if others:
        raise UserError(f"{holder}: no TF1 BERT has a variable {min(others)}")
    return arrays


def num_layers(names: Iterable[str]) -> int:
    """Number of layers of tf-models' BERT whose variables have these names."""
    return len({match[1] for name in names if (match := re.match(r"transformer/layer_(\d+)/", name))})


def check_shapes(
    found: Mapping[str, Sequence[int]],
    expected: Mapping[str, Sequence[int]],
    source: str | os.PathLike,
    holder: str,
    name_in_source: Callable[[str], str] = lambda name: name,
) -> None:
    """Does nothing where arrays of the shapes `found`, by name, are just those that are expected.

    Errors call what holds the arrays `source`, what they are for `holder`, and an array by what `name_in_source` gives
    for its name.

    Raises:
      UserError: an array is missing, unexpected or of another shape; it names the arrays.
    """
    for what, names in (("missing", expected.keys() - found.keys()), ("unexpected", found.keys() - expected.keys())):
        if names:
            listed = [name_in_source(name) for name in (*expected, *sorted(found)) if name in names]
            more = f" and {len(names) - _MOST_LISTED} more" if len(names) > _MOST_LISTED else ""
            raise UserError(
                f"{source}: {len(names)} variable{'s' if len(names) > 1 else ''} {what}: "
                f"{', '.join(listed[:_MOST_LISTED])}{more}, expected the {len(expected)} variables of {holder}"
            )
    for name, shape in expected.items():
        if list(found[name]) != list(shape):
            raise UserError(
                f"{source}: variable {name_in_source(name)}: found shape {list(found[name])}, expected {list(shape)}, "
                f"that of {holder}"
            )


def check_arrays(
    arrays: Mapping[str, np.ndarray], variables: Mapping[str, Any], source: str | os.PathLike, holder: str
) -> None:
    """`check_shapes` of arrays that are to be assigned to TensorFlow's variables, and `check_finite`."""
    shapes = {name: np.shape(array) for name, array in arrays.items()}
    check_shapes(shapes, {name: variable.shape for name, variable in variables.items()}, source, holder)
    check_finite(arrays, source)


def check_finite(arrays: Mapping[str, np.ndarray], source: str | os.PathLike) -> None:
    """Raises `UserError`, naming the variable, where an array of the dict holds NaN or infinity."""
    for name, value in arrays.items():
        if not np.isfinite(value).all():
            raise UserError(f"{source}: variable {name} holds NaN or infinity, expected finite numbers")
