"""BERT's forward pass over a TF-Hub encoder's own variables, with dropout and gradients in training."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from bert_flow_tf.encoder.convert.bert_config import LAYER_NORM_EPS, BertConfig
from bert_flow_tf.encoder.convert.weights import keras_names, num_layers
from bert_flow_tf.encoder.dropout import Dropout

_MASKED = -1e9
_TABLES = ("word_embeddings/embeddings", "position_embedding/embeddings", "type_embeddings/embeddings")
# Largest deviation from the SavedModel's outputs, relative to their largest value. Rounding makes less than 1e-6 in six
# layers; GELU by the error function instead of tanh makes 2e-4 in the first layer.
_LARGEST_DEVIATION = 2e-5
_PROBE_LENGTH = 16
# GELU's approximation is by tanh(_TANH_SCALE * (x + _TANH_CUBE * x³)).
_TANH_SCALE, _TANH_CUBE = 0.7978845608028654, 0.044715
_SQRT_HALF, _NORMAL_DENSITY = 0.7071067811865476, 0.3989422804014327

Inputs = dict[str, tf.Tensor]
Variables = dict[str, tf.Variable]
Outputs = dict[str, Any]


class Bert:
    """BERT (Devlin et al. 2019) from an encoder's inputs to the outputs of its SavedModel, over the same variables.

    The tokens of a batch are the rows of one matrix, so that TensorFlow makes one kernel of a product, its bias and its
    GELU, and another of a layer norm.

    Args:
      variables: dict of name -> variable of tf-models' BERT.
      config: its shape, activation ("gelu_tanh" or "gelu_erf") and dropout rates.
      trainable: True if training needs gradients of the variables.
      dtype: of matrices and of their products; bfloat16 rounds a copy of the matrices.
      portable: True for operations that other formats have, such as ONNX.
    """

    def __init__(
        self,
        variables: Variables,
        config: BertConfig,
        *,
        trainable: bool = False,
        dtype: tf.DType = tf.float32,
        portable: bool = False,
    ) -> None:
        self.config = config
        self.variables = dict(variables)
        self._trainable = trainable
        self._operations = _PORTABLE if portable else _FUSED
        for name, variable in variables.items():
            if dtype != tf.float32 and name.endswith(("/kernel", "/embeddings")):
                matrix = tf.cast(tf.convert_to_tensor(variable), dtype)
                self.variables[name] = tf.Variable(matrix, trainable=False, name=name)

    def __call__(
        self, inputs: Inputs, seeds: tf.Tensor | None = None, *, training: bool = False, first_token_only: bool = False
    ) -> Outputs:
        """dict of `encoder_outputs`, a list of [batch, seq, width], `sequence_output`, its last, and `pooled_output`.

        Args:
          inputs: dict of int32 [batch, seq]. For training, `input_mask` must be 1 up to a sentence's end and 0 after.
          seeds: int64 [batch, 2] of the sentences' dropout; None for none.
          training: compute at the tokens alone, and give 0 at padding.
          first_token_only: compute the last layer at [CLS] alone, as [batch, 1, width].
        """
        # XLA would have to know the number of tokens before it sees them.
        is_traced = training and not tf.executing_eagerly()
        scope = tf.xla.experimental.jit_scope(compile_ops=False) if is_traced else contextlib.nullcontext()
        with scope:
            return self._outputs(inputs, seeds, training, first_token_only)

    def _outputs(self, inputs: Inputs, seeds: tf.Tensor | None, training: bool, first_token_only: bool) -> Outputs:
        mask = inputs["input_mask"]
        layout = _Tokens(mask) if training else _Positions(mask)
        words, positions, types = (self.variables[name] for name in _TABLES)
        # As in TF1, words have one gradient slice per token and the others dense gradients: the global norm of clipping
        # depends on it.
        rows = tf.cast(tf.gather(words, layout.pick(inputs["input_word_ids"])), tf.float32)
        one_hot = tf.one_hot(layout.pick(inputs["input_type_ids"]), types.shape[0], dtype=types.dtype)
        rows += tf.cast(tf.matmul(one_hot, types), tf.float32)
        positions = tf.cast(tf.convert_to_tensor(positions)[: layout.length], tf.float32)
        rows += layout.rows(tf.broadcast_to(positions, [layout.batch, layout.length, types.shape[1]]))
        # Without gradients the fused operations are faster in training, too.
        operations = _LEARNING if training and self._trainable else self._operations
        dropout = Dropout(self.config, seeds, mask)
        rows = dropout.hidden(self._norm(operations, rows, "embeddings/layer_norm"), 0)
        bias = (1.0 - tf.cast(mask, rows.dtype))[:, tf.newaxis, tf.newaxis, :] * _MASKED
        layers = []
        for i in range(self.config.num_hidden_layers):
            first_only = first_token_only and i == self.config.num_hidden_layers - 1
            rows = self._layer(i, rows, layout, bias, dropout, operations, first_only)
            layers.append(rows[:, tf.newaxis] if first_only else layout.spread(rows))
        pooled = tf.tanh(self._dense(layers[-1][:, 0], "pooler_transform"))
        return {"encoder_outputs": layers, "sequence_output": layers[-1], "pooled_output": pooled}

    def _layer(
        self,
        index: int,
        rows: tf.Tensor,
        layout: "_Positions",
        bias: tf.Tensor,
        dropout: Dropout,
        operations: "_Operations",
        first_only: bool,
    ) -> tf.Tensor:
        """States of all rows, [n, width], after the layer; of the first tokens, [batch, width], if `first_only`."""
        path = f"transformer/layer_{index}"
        attention, width = f"{path}/self_attention", rows.shape[1]
        asking = layout.spread(rows)[:, 0] if first_only else rows
        if isinstance(layout, _Tokens):
            query, key, value = self._project_together(attention, rows, layout)
        else:
            query = self._project(f"{attention}/query", asking, layout.batch)
            key, value = (self._project(f"{attention}/{name}", rows, layout.batch) for name in ("key", "value"))
        query *= query.shape[-1] ** -0.5
        weights = dropout.attention(tf.nn.softmax(tf.matmul(query, key, transpose_b=True) + bias), index)
        attended = tf.reshape(tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3]), [layout.batch, -1, width])
        attended = attended[:, 0] if first_only else layout.rows(attended)
        attended = dropout.hidden(self._dense(attended, f"{attention}/attention_output"), 2 * index + 1)
        rows = self._norm(operations, attended + asking, f"{attention}_layer_norm")
        hidden = operations[self.config.hidden_act](self._dense(rows, f"{path}/intermediate"))
        hidden = dropout.hidden(self._dense(hidden, f"{path}/output"), 2 * index + 2)
        return self._norm(operations, hidden + rows, f"{path}/output_layer_norm")

    def _project(self, path: str, x: tf.Tensor, batch: tf.Tensor) -> tf.Tensor:
        """Queries, keys or values, [batch, heads, seq, size], of rows `x`."""
        _, heads, size = self.variables[f"{path}/kernel"].shape
        return tf.transpose(tf.reshape(self._dense(x, path), [batch, -1, heads, size]), [0, 2, 1, 3])

    def _project_together(self, attention: str, rows: tf.Tensor, layout: "_Positions") -> list[tf.Tensor]:
        """Queries, keys and values, each [batch, heads, seq, size]."""
        # One product of three times the width takes half the time of three.
        width, heads, size = self.variables[f"{attention}/query/kernel"].shape
        kernels, biases = (
            [tf.convert_to_tensor(self.variables[f"{attention}/{name}/{part}"]) for name in ("query", "key", "value")]
            for part in ("kernel", "bias")
        )
        kernel = tf.concat([tf.reshape(each, [width, width]) for each in kernels], axis=1)
        bias = tf.concat([tf.reshape(each, [width]) for each in biases], axis=0)
        x = layout.spread(tf.nn.bias_add(tf.matmul(rows, kernel), bias))
        x = tf.reshape(x, [layout.batch, -1, 3, heads, size])
        return tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]))

    def _dense(self, x: tf.Tensor, path: str) -> tf.Tensor:
        """`x` [n, in] times a kernel, whose first axis or axes have `in` entries, plus its bias."""
        kernel, bias = (tf.convert_to_tensor(self.variables[f"{path}/{name}"]) for name in ("kernel", "bias"))
        product = tf.matmul(tf.cast(x, kernel.dtype), tf.reshape(kernel, [-1, bias.shape.num_elements()]))
        # TensorFlow fuses this form into one kernel.
        return tf.nn.bias_add(tf.cast(product, bias.dtype), tf.reshape(bias, [-1]))

    def _norm(self, operations: "_Operations", x: tf.Tensor, path: str) -> tf.Tensor:
        gamma, beta = (tf.convert_to_tensor(self.variables[f"{path}/{name}"]) for name in ("gamma", "beta"))
        return operations["layer_norm"](x, gamma, beta)


class _Positions:
    """All positions of a batch [batch, seq] as the rows of a matrix, padding included."""

    def __init__(self, mask: tf.Tensor) -> None:
        self.batch, self.length = tf.unstack(tf.shape(mask))

    def pick(self, values: tf.Tensor) -> tf.Tensor:
        """The rows' values, [n], of [batch, seq]."""
        return tf.reshape(values, [-1])

    def rows(self, states: tf.Tensor) -> tf.Tensor:
        """The rows, [n, width], of [batch, seq, width]."""
        return tf.reshape(states, [self.batch * self.length, states.shape[-1]])

    def spread(self, rows: tf.Tensor) -> tf.Tensor:
        """[batch, seq, width] of the rows, [n, width]."""
        return tf.reshape(rows, [self.batch, self.length, rows.shape[-1]])


class _Tokens(_Positions):
    """The tokens of a batch as rows: the positions where `mask`, int32 [batch, seq], is 1; padding is 0."""

    def __init__(self, mask: tf.Tensor) -> None:
        super().__init__(mask)
        flat = tf.reshape(mask, [-1])
        self._positions = tf.cast(tf.where(flat > 0)[:, 0], tf.int32)
        # Padding has the row after the last, which is 0.
        self._row_of = tf.where(flat > 0, tf.cumsum(flat) - 1, tf.size(self._positions))

    def pick(self, values: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.reshape(values, [-1]), self._positions)

    # Each of the two is the other one's gradient; TensorFlow's own gradient would add up rows that occur once.
    def rows(self, states: tf.Tensor) -> tf.Tensor:
        return tf.custom_gradient(lambda states: (self._rows(states), self._spread))(states)

    def spread(self, rows: tf.Tensor) -> tf.Tensor:
        return tf.custom_gradient(lambda rows: (self._spread(rows), self._rows))(rows)

    def _rows(self, states: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.reshape(states, [-1, states.shape[-1]]), self._positions)

    def _spread(self, rows: tf.Tensor) -> tf.Tensor:
        padded = tf.gather(tf.pad(rows, [[0, 1], [0, 0]]), self._row_of)
        return tf.reshape(padded, [self.batch, self.length, rows.shape[-1]])


def _fused_layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    """Layer norm of the rows of `x` [n, width] (Ba et al. 2016): a row is a channel of one batch norm."""
    count = tf.shape(x)[0]
    image = tf.reshape(x, [1, count, -1, 1])
    scaled, _, _ = tf.compat.v1.nn.fused_batch_norm(
        image, scale=tf.ones([count]), offset=tf.zeros([count]), epsilon=LAYER_NORM_EPS, data_format="NCHW"
    )
    return tf.reshape(scaled, tf.shape(x)) * gamma + beta


def _portable_layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
    deviation = tf.sqrt(tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True) + LAYER_NORM_EPS)
    return centred / deviation * gamma + beta


@tf.custom_gradient
def _learning_layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple:
    """Layer norm with its gradient in few operations."""
    centred = x - tf.reduce_mean(x, axis=1, keepdims=True)
    factor = tf.math.rsqrt(tf.reduce_mean(centred * centred, axis=1, keepdims=True) + LAYER_NORM_EPS)
    normed = centred * factor

    def gradient(upstream: tf.Tensor) -> tuple:
        scaled = upstream * gamma
        along = tf.reduce_mean(scaled * normed, axis=1, keepdims=True)
        of_x = (scaled - tf.reduce_mean(scaled, axis=1, keepdims=True) - normed * along) * factor
        return of_x, tf.reduce_sum(upstream * normed, axis=0), tf.reduce_sum(upstream, axis=0)

    return normed * gamma + beta, gradient


# GELU (Hendrycks & Gimpel 2016) by tanh, as TF1's BERT has it, and by the error function.
@tf.custom_gradient
def _learning_gelu_tanh(x: tf.Tensor) -> tuple:
    square = x * x
    tanh = tf.tanh(x * (_TANH_SCALE + (_TANH_SCALE * _TANH_CUBE) * square))
    share = 0.5 * (1.0 + tanh)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        slope = _TANH_SCALE + (3.0 * _TANH_SCALE * _TANH_CUBE) * square
        return upstream * (share + (0.5 * x) * (1.0 - tanh * tanh) * slope)

    return x * share, gradient


@tf.custom_gradient
def _learning_gelu_erf(x: tf.Tensor) -> tuple:
    share = 0.5 * (1.0 + tf.math.erf(x * _SQRT_HALF))

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return upstream * (share + x * (_NORMAL_DENSITY * tf.exp(-0.5 * x * x)))

    return x * share, gradient


def _portable_gelu_erf(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * x * (1.0 + tf.math.erf(x * 0.5**0.5))


_Operations = Mapping[str, Callable[..., tf.Tensor]]
_FUSED: _Operations = {
    "layer_norm": _fused_layer_norm,
    "gelu_tanh": lambda x: tf.nn.gelu(x, approximate=True),
    "gelu_erf": lambda x: tf.nn.gelu(x, approximate=False),
}
_PORTABLE: _Operations = {**_FUSED, "layer_norm": _portable_layer_norm, "gelu_erf": _portable_gelu_erf}
_LEARNING: _Operations = {
    "layer_norm": _learning_layer_norm,
    "gelu_tanh": _learning_gelu_tanh,
    "gelu_erf": _learning_gelu_erf,
}


def probe_inputs(variables: Mapping[str, tf.Variable]) -> Inputs:
    """Inputs [2, seq] of many ids and all types, one sentence shorter than the other."""

    def rows(name: str, default: int) -> int:
        return next((v.shape[0] for key, v in variables.items() if name in key), default)

    length = min(rows(_TABLES[1], _PROBE_LENGTH), _PROBE_LENGTH)
    positions = tf.range(2 * length)
    inputs = {
        # A prime spreads the ids over the vocabulary.
        "input_word_ids": positions * 7919 % rows(_TABLES[0], 2),
        "input_mask": tf.cast(positions < length + length // 2, tf.int32),
        "input_type_ids": positions % rows(_TABLES[2], 1),
    }
    return {name: tf.reshape(value, [2, length]) for name, value in inputs.items()}


def bert_of(variables: Variables, inputs: Inputs, expected: Outputs, recorded: BertConfig | None) -> Bert | None:
    """`Bert` of the variables; None if they are not a BERT's in float32, or the SavedModel computes something else.

    `expected` are the SavedModel's outputs, without dropout, for `inputs`. The dropout rates are those `recorded`
    beside the encoder; .1, as in the original, if nothing is.
    """
    is_float32 = all(variable.dtype == tf.float32 for variable in variables.values())
    if not is_float32 or set(variables) != set(keras_names(num_layers(variables)).values()):
        return None
    for activation in ("gelu_tanh", "gelu_erf"):
        bert = Bert(variables, _config_of(variables, activation, recorded))
        if _agree(bert(inputs), expected, inputs["input_mask"]):
            return bert
    return None


def _config_of(variables: Variables, activation: str, recorded: BertConfig | None) -> BertConfig:
    (pieces, width), (positions, _), (types, _) = (variables[name].shape for name in _TABLES)
    return BertConfig(
        vocab_size=pieces,
        hidden_size=width,
        num_hidden_layers=num_layers(variables),
        num_attention_heads=variables["transformer/layer_0/self_attention/query/kernel"].shape[1],
        intermediate_size=variables["transformer/layer_0/intermediate/kernel"].shape[1],
        max_position_embeddings=positions,
        type_vocab_size=types,
        hidden_act=activation,
        hidden_dropout_prob=0.1 if recorded is None else recorded.hidden_dropout_prob,
        attention_probs_dropout_prob=0.1 if recorded is None else recorded.attention_probs_dropout_prob,
    )


def _agree(found: Outputs, expected: Outputs, mask: tf.Tensor) -> bool:
    """True if two dicts of outputs are the same up to rounding wherever the mask is 1."""
    weights = tf.cast(mask, tf.float32)[:, :, tf.newaxis]
    lists = [
        [*(states * weights for states in (*outputs["encoder_outputs"], outputs["sequence_output"])), pooled]
        for outputs, pooled in ((found, found["pooled_output"]), (expected, expected["pooled_output"]))
    ]
    return len(lists[0]) == len(lists[1]) and all(
        a.shape == b.shape
        and float(tf.reduce_max(tf.abs(a - b))) <= _LARGEST_DEVIATION * float(tf.reduce_max(tf.abs(b)))
        for a, b in zip(*lists, strict=True)
    )
