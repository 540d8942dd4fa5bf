"""The shape of a BERT, read from a TF1 `bert_config.json` or a Hugging Face `config.json`."""

import dataclasses
import json
import pathlib

from bert_flow_tf.errors import UserError

# "gelu" is the tanh approximation in the TF1 code and the exact, erf form at Hugging Face: the names here say which.
_TF1_ACTIVATIONS = {name: name for name in ("gelu_tanh", "gelu_erf", "relu", "tanh", "linear")} | {"gelu": "gelu_tanh"}
_HUGGING_FACE_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
_LAYER_NORM_EPS = 1e-12


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Shape, activation and dropout rates of a BERT. `hidden_act` is gelu_tanh, gelu_erf, relu, tanh or linear."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int
    hidden_act: str
    hidden_dropout_prob: float
    attention_probs_dropout_prob: float
    initializer_range: float = 0.02

    def to_dict(self):
        """dict of all fields, as written to `bert_config.json`."""
        return dataclasses.asdict(self)


def read_tf1_config(path):
    """`BertConfig` of the `bert_config.json` of a TF1 checkpoint.

    Raises:
      UserError: the file is missing, not JSON, or a field is missing or of the wrong kind.
    """
    return _config(path, _read_json(path), _TF1_ACTIVATIONS)


def read_hugging_face_config(path):
    """`BertConfig` of a Hugging Face `config.json`.

    Raises:
      UserError: as `read_tf1_config`, or the model is not a BERT with absolute positions.
    """
    fields = _read_json(path)
    for key, expected in (("model_type", "bert"), ("position_embedding_type", "absolute")):
        if fields.get(key, expected) != expected:
            raise UserError(f"{path}: {key} is {fields[key]!r}, expected {expected!r}")
    return _config(path, fields, _HUGGING_FACE_ACTIVATIONS)


def _read_json(path):
    try:
        fields = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: configuration cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8, expected JSON") from error
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {error.lineno}: {error.msg}, expected JSON") from error
    if not isinstance(fields, dict):
        raise UserError(f"{path}: found a {type(fields).__name__}, expected a JSON object")
    return fields


def _config(path, fields, activations):
    values = {}
    for field in dataclasses.fields(BertConfig):
        value = fields.get(field.name, None if field.default is dataclasses.MISSING else field.default)
        if value is None:
            raise UserError(f"{path}: no {field.name}, expected {field.type.__name__}")
        if isinstance(value, bool) or not isinstance(value, (int, float) if field.type is float else field.type):
            raise UserError(f"{path}: {field.name} is {value!r}, expected {field.type.__name__}")
        if field.type is int and value < 1:
            raise UserError(f"{path}: {field.name} is {value}, expected 1 or more")
        if field.type is float and not 0 <= value < 1:
            raise UserError(f"{path}: {field.name} is {value}, expected a number from 0 to 1")
        values[field.name] = field.type(value)
    if values["hidden_act"] not in activations:
        raise UserError(f"{path}: hidden_act is {values['hidden_act']!r}, expected one of {', '.join(activations)}")
    values["hidden_act"] = activations[values["hidden_act"]]
    eps = fields.get("layer_norm_eps", _LAYER_NORM_EPS)
    if eps != _LAYER_NORM_EPS:
        raise UserError(f"{path}: layer_norm_eps is {eps!r}, expected {_LAYER_NORM_EPS}")
    config = BertConfig(**values)
    if config.hidden_size % config.num_attention_heads:
        raise UserError(
            f"{path}: hidden_size {config.hidden_size} is not a multiple of num_attention_heads "
            f"{config.num_attention_heads}"
        )
    return config
