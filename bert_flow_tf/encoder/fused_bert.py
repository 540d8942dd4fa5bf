"""BERT's forward pass over a TF-Hub encoder's own variables, in operations that TensorFlow fuses."""

from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from bert_flow_tf.encoder.convert.bert_config import LAYER_NORM_EPS, BertConfig
from bert_flow_tf.encoder.convert.weights import keras_names, num_layers

_MASKED = -1e9
# Largest deviation from the SavedModel's own outputs, of their largest value: rounding makes less than 1e-6 of it in
# six layers, the error function instead of its approximation by tanh 2e-4 in the first.
TOLERANCE = 2e-5
_PROBE_LENGTH = 16

Inputs = dict[str, tf.Tensor]
Variables = dict[str, tf.Variable]
# Function of a tensor and of where it is dropped out, such as ("hidden", 0), that gives what is left of it.
Drop = Callable[[tf.Tensor, tuple[str, int]], tf.Tensor]


class Places(Protocol):
    """Where in a batch [batch, seq] the rows of a matrix are."""

    batch: tf.Tensor

    def spread(self, rows: tf.Tensor) -> tf.Tensor:
        """[batch, seq, width] of the rows, [n, width]."""

    def rows(self, states: tf.Tensor) -> tf.Tensor:
        """The rows, [n, width], of [batch, seq, width]."""


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
        self._variables = variables
        self.num_layers = num_layers(variables)

    def __call__(self, inputs: Inputs, *, last_layer_first_token_only: bool = False) -> dict[str, Any]:
        """dict of `encoder_outputs`, a list of [batch, seq, width], `sequence_output`, its last, and `pooled_output`.

        Where `last_layer_first_token_only`, the last layer's states, [batch, 1, width], are computed at [CLS] alone.
        """
        ids, mask = inputs["input_word_ids"], inputs["input_mask"]
        words, positions, types = self._tables()
        places = _Positions(*tf.unstack(tf.shape(ids)))
        states = tf.cast(tf.gather(words, ids), tf.float32)
        states += tf.cast(tf.gather(types, inputs["input_type_ids"]), tf.float32)
        states += tf.cast(tf.convert_to_tensor(positions)[: places.length], tf.float32)
        rows = self._norm(places.rows(states), "embeddings/layer_norm")
        bias = attention_bias(mask, rows.dtype)
        outputs = []
        for i in range(self.num_layers):
            first_only = last_layer_first_token_only and i == self.num_layers - 1
            rows = self._layer(i, rows, places, bias, lambda x, site: x, first_only)
            outputs.append(rows[:, tf.newaxis] if first_only else places.spread(rows))
        return self._outputs(outputs)

    @property
    def config(self) -> BertConfig:
        """The BERT's shape and activation, and the original's dropout rates, which no variable shows."""
        (pieces, width), (positions, _), (types, _) = (table.shape for table in self._tables())
        return BertConfig(
            vocab_size=pieces,
            hidden_size=width,
            num_hidden_layers=self.num_layers,
            num_attention_heads=self._variables["transformer/layer_0/self_attention/query/kernel"].shape[1],
            intermediate_size=self._variables["transformer/layer_0/intermediate/kernel"].shape[1],
            max_position_embeddings=positions,
            type_vocab_size=types,
            hidden_act="gelu_tanh" if self.approximate_gelu else "gelu_erf",
            hidden_dropout_prob=0.1,
            attention_probs_dropout_prob=0.1,
        )

    def _tables(self) -> list[tf.Variable]:
        """The embeddings of words, positions and token types."""
        names = ("word_embeddings", "position_embedding", "type_embeddings")
        return [self._variables[f"{name}/embeddings"] for name in names]

    def _outputs(self, layers: list[tf.Tensor]) -> dict[str, Any]:
        """The outputs by name, of each layer's [batch, seq, width]."""
        return {
            "encoder_outputs": layers,
            "sequence_output": layers[-1],
            "pooled_output": tf.tanh(self._dense(layers[-1][:, 0], "pooler_transform")),
        }

    def _layer(
        self, index: int, rows: tf.Tensor, places: Places, bias: tf.Tensor, drop: Drop, first_only: bool = False
    ) -> tf.Tensor:
        """States of all rows, [n, width], after the layer, [batch, width] where `first_only`, of those before it."""
        path = f"transformer/layer_{index}"
        attention = f"{path}/self_attention"
        asking = places.spread(rows)[:, 0] if first_only else rows
        query, key, value = self._projected(attention, asking, rows, places, first_only)
        width, size = rows.shape[1], query.shape[-1]
        query *= size**-0.5
        weights = drop(tf.nn.softmax(tf.matmul(query, key, transpose_b=True) + bias), ("attention", index))
        attended = tf.reshape(tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3]), [places.batch, -1, width])
        attended = attended[:, 0] if first_only else places.rows(attended)
        attended = drop(self._dense(attended, f"{attention}/attention_output"), ("hidden", 2 * index + 1))
        rows = self._norm(attended + asking, f"{attention}_layer_norm")
        hidden = self._gelu(self._dense(rows, f"{path}/intermediate"))
        hidden = drop(self._dense(hidden, f"{path}/output"), ("hidden", 2 * index + 2))
        return self._norm(hidden + rows, f"{path}/output_layer_norm")

    def _projected(
        self, attention: str, asking: tf.Tensor, rows: tf.Tensor, places: Places, first_only: bool
    ) -> list[tf.Tensor]:
        """Queries of `asking`, keys and values of `rows`, each [batch, heads, seq, size].

        Where `first_only`, the queries have a seq of 1.
        """
        _, heads, size = self._variables[f"{attention}/query/kernel"].shape
        projected = []
        for name, x in (("query", asking), ("key", rows), ("value", rows)):
            x = self._dense(x, f"{attention}/{name}")
            x = x if first_only and name == "query" else places.spread(x)
            projected.append(tf.transpose(tf.reshape(x, [places.batch, -1, heads, size]), [0, 2, 1, 3]))
        return projected

    def _gelu(self, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.gelu(x, approximate=self.approximate_gelu)

    def _dense(self, x: tf.Tensor, path: str) -> tf.Tensor:
        """`x` [n, in] times a kernel, of which `in` is the size of the first axis or axes, plus its bias."""
        kernel, bias = (tf.convert_to_tensor(self._variables[f"{path}/{name}"]) for name in ("kernel", "bias"))
        outputs = bias.shape.num_elements()
        product = tf.matmul(tf.cast(x, kernel.dtype), tf.reshape(kernel, [-1, outputs]))
        # In this form TensorFlow makes one kernel of it.
        return tf.nn.bias_add(tf.cast(product, bias.dtype), tf.reshape(bias, [-1]))

    def _norm(self, x: tf.Tensor, path: str) -> tf.Tensor:
        """Layer norm of the rows of `x` [n, width]: a row is a channel of one batch norm, which is one kernel."""
        count = tf.shape(x)[0]
        image = tf.reshape(x, [1, count, -1, 1])
        scaled, _, _ = tf.compat.v1.nn.fused_batch_norm(
            image, scale=tf.ones([count]), offset=tf.zeros([count]), epsilon=LAYER_NORM_EPS, data_format="NCHW"
        )
        return tf.reshape(scaled, tf.shape(x)) * self._variables[f"{path}/gamma"] + self._variables[f"{path}/beta"]


class PlainBert(FusedBert):
    """`FusedBert` in operations that other formats than TensorFlow's have, too, and whose programs fuse."""

    def _gelu(self, x: tf.Tensor) -> tf.Tensor:
        if self.approximate_gelu:
            return super()._gelu(x)
        return 0.5 * x * (1.0 + tf.math.erf(x * 0.5**0.5))

    def _norm(self, x: tf.Tensor, path: str) -> tf.Tensor:
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        deviation = tf.sqrt(tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True) + LAYER_NORM_EPS)
        return centred / deviation * self._variables[f"{path}/gamma"] + self._variables[f"{path}/beta"]


def attention_bias(mask: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """[batch, 1, 1, seq], added to attention's scores: a large negative number where `mask` [batch, seq] is 0."""
    return (1.0 - tf.cast(mask, dtype))[:, tf.newaxis, tf.newaxis, :] * _MASKED


class _Positions:
    """`Places` of a batch whose rows are all positions, padding too."""

    def __init__(self, batch: tf.Tensor, length: tf.Tensor) -> None:
        self.batch, self.length = batch, length

    def spread(self, rows: tf.Tensor) -> tf.Tensor:
        return tf.reshape(rows, [self.batch, self.length, rows.shape[-1]])

    def rows(self, states: tf.Tensor) -> tf.Tensor:
        return tf.reshape(states, [self.batch * self.length, states.shape[-1]])


def fused_bert(reference: Callable[[Inputs], dict[str, Any]], variables: Variables) -> FusedBert | None:
    """`FusedBert` of the variables, or None where they are no BERT's in float32, or `reference` computes another thing.

    `reference` is the SavedModel's function, dropout off; both run on two sentences of different lengths.
    """
    if set(variables) != set(keras_names(num_layers(variables)).values()):
        return None
    if any(variable.dtype != tf.float32 for variable in variables.values()):
        return None
    inputs = probe_inputs(variables)
    expected = reference(inputs)
    candidates = (FusedBert(variables, approximate_gelu=approximate) for approximate in (True, False))
    return next((fused for fused in candidates if _agree(fused(inputs), expected, inputs["input_mask"])), None)


def probe_inputs(variables: Variables) -> Inputs:
    """Inputs [2, seq] of many ids and all types, one sentence shorter than the other."""
    rows = {name: variables[f"{name}/embeddings"].shape[0] for name in ("word_embeddings", "type_embeddings")}
    length = min(variables["position_embedding/embeddings"].shape[0], _PROBE_LENGTH)
    positions = tf.range(2 * length)
    inputs = {
        # Spread over the vocabulary by a prime.
        "input_word_ids": positions * 7919 % rows["word_embeddings"],
        "input_mask": tf.cast(positions < length + length // 2, tf.int32),
        "input_type_ids": positions % rows["type_embeddings"],
    }
    return {name: tf.reshape(value, [2, length]) for name, value in inputs.items()}


def _agree(found: dict[str, Any], expected: dict[str, Any], mask: tf.Tensor) -> bool:
    """Whether two dicts of outputs are the same up to rounding, wherever the mask is 1."""
    if len(found["encoder_outputs"]) != len(expected["encoder_outputs"]):
        return False
    weights = tf.cast(mask, tf.float32)[:, :, tf.newaxis]
    states = ([*outputs["encoder_outputs"], outputs["sequence_output"]] for outputs in (found, expected))
    pairs = [(a * weights, b * weights) for a, b in zip(*states, strict=True)]
    pairs.append((found["pooled_output"], expected["pooled_output"]))
    return all(
        a.shape == b.shape and float(tf.reduce_max(tf.abs(a - b))) <= TOLERANCE * float(tf.reduce_max(tf.abs(b)))
        for a, b in pairs
    )
