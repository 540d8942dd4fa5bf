"""BERT's forward pass over a TF-Hub encoder's own variables, in operations that TensorFlow fuses."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from bert_flow_tf.encoder.convert.weights import keras_names

_EPSILON = 1e-12
_MASKED = -1e9
# Largest deviation from the SavedModel's own outputs, of their largest value: rounding makes less than 1e-6 of it in
# six layers, the error function instead of its approximation by tanh 2e-4 in the first.
_TOLERANCE = 2e-5
_PROBE_LENGTH = 16
_DENSE = ("kernel", "bias")
_NORM = ("gamma", "beta")

Inputs = dict[str, tf.Tensor]
Variables = dict[str, tf.Variable]


class FusedBert:
    """Callable from an encoder's inputs, a dict of int32 [batch, seq], to the outputs of its SavedModel, dropout off.

    A SavedModel multiplies three-dimensional tensors by Einsum, and adds, scales and activates in operations of their
    own. Here the tokens of a batch are the rows of one matrix, so that TensorFlow's optimiser makes one kernel of a
    product, its bias and its GELU, and another of a layer norm. The variables are those of the SavedModel, not copies:
    what training changes is seen here at once.

    Args:
      variables: dict of name -> variable, `SentenceEncoder.variables_by_name`.
      approximate_gelu: whether GELU is the original's approximation by tanh; else it is by the error function.
    """

    def __init__(self, variables: Variables, *, approximate_gelu: bool) -> None:
        self.approximate_gelu = approximate_gelu
        self._words = variables["word_embeddings/embeddings"]
        self._positions = variables["position_embedding/embeddings"]
        self._types = variables["type_embeddings/embeddings"]
        self._norm = _parameters(variables, "embeddings/layer_norm", _NORM)
        self._layers = [_Layer(variables, f"transformer/layer_{i}") for i in range(_num_layers(variables))]
        self._pooler = _parameters(variables, "pooler_transform", _DENSE)

    def __call__(self, inputs: Inputs, *, last_layer_first_token_only: bool = False) -> dict[str, Any]:
        """dict of `encoder_outputs`, a list of [batch, seq, width], `sequence_output`, its last, and `pooled_output`.

        Where `last_layer_first_token_only`, the last layer's states, [batch, 1, width], are computed at [CLS] alone.
        """
        ids, mask = inputs["input_word_ids"], inputs["input_mask"]
        batch, length, width = tf.shape(ids)[0], tf.shape(ids)[1], self._words.shape[1]
        states = tf.cast(tf.gather(self._words, ids), tf.float32)
        states += tf.cast(tf.gather(self._types, inputs["input_type_ids"]), tf.float32)
        states += tf.cast(tf.convert_to_tensor(self._positions)[:length], tf.float32)
        rows = _layer_norm(tf.reshape(states, [batch * length, width]), self._norm)
        # Added to the scores of what is attended to.
        bias = (1.0 - tf.cast(mask, rows.dtype))[:, tf.newaxis, tf.newaxis, :] * _MASKED
        outputs = []
        for i, layer in enumerate(self._layers):
            first_only = last_layer_first_token_only and i == len(self._layers) - 1
            rows = layer(rows, bias, batch, length, first_only, self.approximate_gelu)
            outputs.append(tf.reshape(rows, [batch, 1 if first_only else length, width]))
        return {
            "encoder_outputs": outputs,
            "sequence_output": outputs[-1],
            "pooled_output": tf.tanh(_dense(outputs[-1][:, 0], self._pooler)),
        }

    def probe(self) -> Inputs:
        """Inputs [2, seq] of many ids and all types, one sentence shorter than the other."""
        length = min(self._positions.shape[0], _PROBE_LENGTH)
        positions = tf.range(2 * length)
        inputs = {
            # Spread over the vocabulary by a prime.
            "input_word_ids": positions * 7919 % self._words.shape[0],
            "input_mask": tf.cast(positions < length + length // 2, tf.int32),
            "input_type_ids": positions % self._types.shape[0],
        }
        return {name: tf.reshape(value, [2, length]) for name, value in inputs.items()}


class _Layer:
    """One layer: attention and a network of one hidden layer, a layer norm after the residual sum of each."""

    def __init__(self, variables: Variables, path: str) -> None:
        attention = f"{path}/self_attention"
        self._query, self._key, self._value = (
            _parameters(variables, f"{attention}/{name}", _DENSE) for name in ("query", "key", "value")
        )
        self._attended = _parameters(variables, f"{attention}/attention_output", _DENSE)
        self._attention_norm = _parameters(variables, f"{attention}_layer_norm", _NORM)
        self._intermediate = _parameters(variables, f"{path}/intermediate", _DENSE)
        self._output = _parameters(variables, f"{path}/output", _DENSE)
        self._output_norm = _parameters(variables, f"{path}/output_layer_norm", _NORM)

    def __call__(
        self, rows: tf.Tensor, bias: tf.Tensor, batch: tf.Tensor, length: tf.Tensor, first_only: bool, tanh_gelu: bool
    ) -> tf.Tensor:
        """States [batch * seq, width] after the layer, [batch, width] where `first_only`, of those before it."""
        width, heads, size = self._query[0].shape

        def split(x: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
            """[batch, heads, positions, size] of [batch * positions, width]."""
            return tf.transpose(tf.reshape(x, [batch, positions, heads, size]), [0, 2, 1, 3])

        asking, positions = rows, length
        if first_only:
            asking, positions = tf.reshape(rows, [batch, length, width])[:, 0], 1
        query = split(_dense(asking, self._query), positions) * size**-0.5
        key, value = (split(_dense(rows, parameters), length) for parameters in (self._key, self._value))
        weights = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) + bias)
        attended = tf.reshape(tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3]), [batch * positions, width])
        rows = _layer_norm(_dense(attended, self._attended) + asking, self._attention_norm)
        hidden = tf.nn.gelu(_dense(rows, self._intermediate), approximate=tanh_gelu)
        return _layer_norm(_dense(hidden, self._output) + rows, self._output_norm)


def fused_bert(reference: Callable[[Inputs], dict[str, Any]], variables: Variables) -> FusedBert | None:
    """`FusedBert` of the variables, or None where they are not a BERT's or `reference` computes something else.

    `reference` is the SavedModel's function, dropout off; both run on two sentences of different lengths.
    """
    if set(variables) != set(keras_names(_num_layers(variables)).values()):
        return None
    candidates = [FusedBert(variables, approximate_gelu=approximate) for approximate in (True, False)]
    inputs = candidates[0].probe()
    expected = reference(inputs)
    return next((fused for fused in candidates if _agree(fused(inputs), expected, inputs["input_mask"])), None)


def _num_layers(variables: Variables) -> int:
    return len({match[1] for name in variables if (match := re.match(r"transformer/layer_(\d+)/", name))})


def _agree(found: dict[str, Any], expected: dict[str, Any], mask: tf.Tensor) -> bool:
    """Whether two dicts of outputs are the same up to rounding, wherever the mask is 1."""
    if len(found["encoder_outputs"]) != len(expected["encoder_outputs"]):
        return False
    weights = tf.cast(mask, tf.float32)[:, :, tf.newaxis]
    states = ([*outputs["encoder_outputs"], outputs["sequence_output"]] for outputs in (found, expected))
    pairs = [(a * weights, b * weights) for a, b in zip(*states, strict=True)]
    pairs.append((found["pooled_output"], expected["pooled_output"]))
    return all(
        a.shape == b.shape and float(tf.reduce_max(tf.abs(a - b))) <= _TOLERANCE * float(tf.reduce_max(tf.abs(b)))
        for a, b in pairs
    )


def _parameters(variables: Variables, path: str, names: Sequence[str]) -> list[tf.Variable]:
    return [variables[f"{path}/{name}"] for name in names]


def _dense(x: tf.Tensor, parameters: Sequence[tf.Variable]) -> tf.Tensor:
    """`x` [n, in] times a kernel, of which `in` is the size of the first axis or axes, plus its bias."""
    kernel, bias = (tf.convert_to_tensor(variable) for variable in parameters)
    outputs = bias.shape.num_elements()
    product = tf.matmul(tf.cast(x, kernel.dtype), tf.reshape(kernel, [-1, outputs]))
    # In this form TensorFlow makes one kernel of it.
    return tf.nn.bias_add(tf.cast(product, bias.dtype), tf.reshape(bias, [-1]))


def _layer_norm(x: tf.Tensor, parameters: Sequence[tf.Variable]) -> tf.Tensor:
    """Layer norm of the rows of `x` [n, width]: a row is a channel of one batch norm, which is one kernel."""
    gamma, beta = parameters
    count = tf.shape(x)[0]
    image = tf.reshape(x, [1, count, -1, 1])
    scaled, _, _ = tf.compat.v1.nn.fused_batch_norm(
        image, scale=tf.ones([count]), offset=tf.zeros([count]), epsilon=_EPSILON, data_format="NCHW"
    )
    return tf.reshape(scaled, tf.shape(x)) * gamma + beta
