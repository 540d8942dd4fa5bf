"""BERT's forward pass."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_flow_tf.encoder.weights import (
    LAYER_NORM_EPS,
    WORD_EMBEDDINGS,
    BertConfig,
    variable_shapes,
)

_PROJECTIONS = ("query", "key", "value")
_TABLES = (
    WORD_EMBEDDINGS,
    "bert/embeddings/position_embeddings",
    "bert/embeddings/token_type_embeddings",
)
# GELU's approximation has the term tanh(_TANH_SCALE * (x + _TANH_CUBE * x³)).
_TANH_SCALE = 0.7978845608028654
_TANH_CUBE = 0.044715
_SQRT_HALF = 0.7071067811865476
_NORMAL_DENSITY = 0.3989422804014327

Inputs = dict[str, tf.Tensor]
Variables = dict[str, tf.Variable]
Outputs = dict[str, Any]
_Operation = Callable[..., tf.Tensor]
_Operations = dict[str, _Operation]


class Bert:
    """BERT (Devlin et al. 2019) with variables of TF1's names and shapes.

    A batch's tokens are the rows of one matrix, so that TensorFlow can fuse product, bias and GELU.

    Args:
      weights: dict of TF1 name -> array, or the variables of another `Bert`, which are shared.
      config: the BERT's shape, activation and dropout rates.
      trainable: True if training needs gradients of the variables.
      dtype: type of the matrices and products; bfloat16 rounds a copy of the matrices.
      portable: True to use only operations that ONNX has.
    """

    def __init__(
        self,
        weights: Mapping[str, np.ndarray | tf.Variable],
        config: BertConfig,
        *,
        trainable: bool = False,
        dtype: tf.DType = tf.float32,
        portable: bool = False,
    ) -> None:
        self.config = config
        self._trainable = trainable
        self._portable = portable
        self.num_layers = config.num_hidden_layers
        self.hidden_size = config.hidden_size
        self._head_size = config.hidden_size // config.num_attention_heads
        self.variables: Variables = {}
        for name in variable_shapes(config):
            value = weights[name]
            if isinstance(value, np.ndarray):
                # TensorFlow transposes faster than numpy, and Hugging Face's kernels are
                # transposed.
                value = value if value.flags.c_contiguous else tf.transpose(value.T)
                value = tf.Variable(value, trainable=trainable, name=name)
            if dtype != tf.float32 and len(value.shape) > 1:
                value = tf.Variable(
                    tf.cast(tf.convert_to_tensor(value), dtype), trainable=False, name=name
                )
            self.variables[name] = value

    def __call__(
        self,
        inputs: Inputs,
        seeds: tf.Tensor | None = None,
        *,
        training: bool = False,
        first_token_only: bool = False,
    ) -> Outputs:
        """Return a dict of the encoder's outputs.

        They are `encoder_outputs` (one per layer), `sequence_output` (the last) and
        `pooled_output`. Padding has states of 0, unless `portable`.

        Args:
          inputs: dict of int32 [batch, seq]. In training, `input_mask` must be 1 up to a sentence's
            end and 0 after.
          seeds: int64 [batch, 2], the sentences' dropout seeds; None for no dropout.
          training: True for operations with hand-written gradients.
          first_token_only: compute the last layer only at [CLS], as [batch, 1, width]; not in
            training.
        """
        assert not (training and first_token_only)
        if tf.executing_eagerly() or self._portable:
            return self._outputs(inputs, seeds, training, first_token_only)
        # XLA needs static shapes, but the number of tokens differs from batch to batch.
        with tf.xla.experimental.jit_scope(compile_ops=False):
            return self._outputs(inputs, seeds, training, first_token_only)

    def in_bfloat16(self) -> "Bert":
        """Return a BERT with rounded copies of the matrices."""
        return Bert(self.variables, self.config, dtype=tf.bfloat16)

    def portable(self, weights: Mapping[str, tf.Tensor] | None = None) -> "Bert":
        """Return a BERT of operations that ONNX has.

        Args:
          weights: what it computes with, by name; None for the variables.
        """
        return Bert(weights or self.variables, self.config, portable=True)

    def _outputs(
        self, inputs: Inputs, seeds: tf.Tensor | None, training: bool, first_token_only: bool
    ) -> Outputs:
        mask = inputs["input_mask"]
        # The gathers of the rows are slow in ONNX, so it computes padding, too.
        layout = _Layout(mask, tokens_only=not self._portable, training=training)
        words, positions, types = (self.variables[name] for name in _TABLES)
        # As in TF1, only the word embeddings have a sparse gradient, because that affects the norm
        # used for clipping.
        rows = tf.cast(tf.gather(words, layout.to_rows(inputs["input_word_ids"])), tf.float32)
        one_hot = tf.one_hot(
            layout.to_rows(inputs["input_type_ids"]), types.shape[0], dtype=types.dtype
        )
        rows += tf.cast(tf.matmul(one_hot, types), tf.float32)
        positions = tf.cast(tf.convert_to_tensor(positions)[: layout.length], tf.float32)
        rows += layout.to_rows(tf.broadcast_to(positions, layout.shape(types.shape[1])))
        # The forms of a frozen BERT are faster, but have no hand-written gradients.
        operations = _PLAIN if training and self._trainable else _FROZEN
        operations = _PORTABLE if self._portable else operations
        dropout = Dropout(self.config, seeds, mask)
        rows = dropout.hidden(self._norm(operations, rows, "bert/embeddings/LayerNorm"), 0)
        layers = []
        for i in range(self.config.num_hidden_layers):
            first_only = first_token_only and i == self.config.num_hidden_layers - 1
            rows = self._layer(i, rows, layout, dropout, operations, first_only)
            layers.append(rows[:, tf.newaxis] if first_only else layout.to_batch(rows))
        pooled = tf.tanh(self._dense(layers[-1][:, 0], "bert/pooler/dense"))
        return {"encoder_outputs": layers, "sequence_output": layers[-1], "pooled_output": pooled}

    def _layer(
        self,
        i: int,
        rows: tf.Tensor,
        layout: "_Layout",
        dropout: "Dropout",
        operations: _Operations,
        first_only: bool,
    ) -> tf.Tensor:
        """Return the layer's states of all rows, or of [CLS] if `first_only`."""
        path = f"bert/encoder/layer_{i}"
        width = rows.shape[1]
        attention = f"{path}/attention/self"
        query_rows = layout.to_batch(rows)[:, 0] if first_only else rows
        if layout.training:
            query, key, value = self._project_qkv(attention, rows, layout)
        else:
            # Joining the three kernels at each call would cost more than one product saves.
            query = self._dense(query_rows, f"{attention}/query")
            # [CLS] alone has a row per sentence already.
            query = (
                tf.reshape(query, [-1, self.config.num_attention_heads, 1, self._head_size])
                if first_only
                else self._heads(layout.to_batch(query), layout)
            )
            key, value = (
                self._heads(layout.to_batch(self._dense(rows, f"{attention}/{name}")), layout)
                for name in _PROJECTIONS[1:]
            )
        query *= query.shape[-1] ** -0.5
        weights = dropout.attention(
            tf.nn.softmax(tf.matmul(query, key, transpose_b=True) + layout.bias), i
        )
        context = tf.transpose(tf.matmul(weights, value), [0, 2, 1, 3])
        context = (
            tf.reshape(context, [-1, width])
            if first_only
            else layout.to_rows(tf.reshape(context, layout.shape(width)))
        )
        context = dropout.hidden(self._dense(context, f"{path}/attention/output/dense"), 2 * i + 1)
        rows = self._norm(operations, context + query_rows, f"{path}/attention/output/LayerNorm")
        hidden = operations[self.config.hidden_act](self._dense(rows, f"{path}/intermediate/dense"))
        hidden = dropout.hidden(self._dense(hidden, f"{path}/output/dense"), 2 * i + 2)
        return self._norm(operations, hidden + rows, f"{path}/output/LayerNorm")

    def _heads(self, x: tf.Tensor, layout: "_Layout") -> tf.Tensor:
        """Return [batch, heads, seq, size] of [batch, seq, width]."""
        shape = layout.shape(self.config.num_attention_heads, self._head_size)
        return tf.transpose(tf.reshape(x, shape), [0, 2, 1, 3])

    def _project_qkv(self, attention: str, rows: tf.Tensor, layout: "_Layout") -> list[tf.Tensor]:
        # One product of three times the width takes half the time of three products.
        kernel, bias = (
            tf.concat([self.variables[f"{attention}/{name}/{part}"] for name in _PROJECTIONS], -1)
            for part in ("kernel", "bias")
        )
        x = layout.to_batch(tf.nn.bias_add(tf.matmul(rows, kernel), bias))
        x = tf.reshape(x, layout.shape(3, self.config.num_attention_heads, self._head_size))
        return tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]))

    def _dense(self, x: tf.Tensor, path: str) -> tf.Tensor:
        kernel, bias = (
            tf.convert_to_tensor(self.variables[f"{path}/{name}"]) for name in ("kernel", "bias")
        )
        # TensorFlow fuses bias_add with the product and the GELU.
        return tf.nn.bias_add(
            tf.cast(tf.matmul(tf.cast(x, kernel.dtype), kernel), bias.dtype), bias
        )

    def _norm(self, operations: _Operations, x: tf.Tensor, path: str) -> tf.Tensor:
        gamma, beta = (
            tf.convert_to_tensor(self.variables[f"{path}/{name}"]) for name in ("gamma", "beta")
        )
        return operations["layer_norm"](x, gamma, beta)


class _Layout:
    """Convert states [batch, seq, width] to rows, without padding if `tokens_only`.

    Attributes:
      to_rows: function of states.
      to_batch: function of rows, which returns states with 0 at padding.
    """

    def __init__(self, mask: tf.Tensor, *, tokens_only: bool, training: bool) -> None:
        self.batch, self.length = tf.unstack(tf.shape(mask))
        self.training = training
        self._tokens_only = tokens_only
        self._shapes: dict[tuple[int, ...], tf.Tensor] = {}
        # Adding this bias to attention scores [batch, heads, seq, seq] removes padding.
        self.bias = (1.0 - tf.cast(mask, tf.float32))[:, tf.newaxis, tf.newaxis, :] * -1e9
        if tokens_only:
            flat = tf.reshape(tf.cast(mask, tf.int32), [-1])
            self._positions = tf.cast(tf.where(flat > 0)[:, 0], tf.int32)
            # Padding reads a row of zeros that is appended.
            self._row_of = tf.where(flat > 0, tf.cumsum(flat) - 1, tf.size(self._positions))
            self._one_row = tf.constant([[0, 1], [0, 0]])
        self.to_rows: _Operation = self._to_rows
        self.to_batch: _Operation = self._to_batch
        if training:
            # Each is the other's gradient. TensorFlow's own would also sum duplicate rows, which
            # never occur. Without training no gradient is needed, and an export would warn of it.
            self.to_rows = tf.custom_gradient(lambda x: (self._to_rows(x), self._to_batch))
            self.to_batch = tf.custom_gradient(lambda x: (self._to_batch(x), self._to_rows))

    def shape(self, *rest: int) -> tf.Tensor:
        """Return the shape [batch, seq, *rest]."""
        if self.training:
            # Gradients are graphs of their own, whose tensors others cannot use.
            return tf.stack([self.batch, self.length, *rest])
        # Tracing takes as long as a graph has operations.
        if rest not in self._shapes:
            self._shapes[rest] = tf.stack([self.batch, self.length, *rest])
        return self._shapes[rest]

    def _to_rows(self, states: tf.Tensor) -> tf.Tensor:
        flat = tf.reshape(states, [-1, *states.shape[2:]])
        return tf.gather(flat, self._positions) if self._tokens_only else flat

    def _to_batch(self, rows: tf.Tensor) -> tf.Tensor:
        if self._tokens_only:
            rows = tf.gather(tf.pad(rows, self._one_row), self._row_of)
        return tf.reshape(rows, self.shape(rows.shape[-1]))


class Dropout:
    """Dropout whose masks depend only on each sentence's seed and length.

    `hidden` is called at site 0 for the embeddings, and at sites 2 i + 1 and 2 i + 2 for layer i.

    Args:
      config: layers, width, heads and rates of the BERT.
      seeds: int64 [batch, 2]; None for no dropout.
      input_mask: int32 [batch, seq], 1 up to a sentence's end.
    """

    def __init__(self, config: BertConfig, seeds: tf.Tensor | None, input_mask: tf.Tensor) -> None:
        self._config = config
        # The masks are bool [tokens, sites * width] and [batch, layers * heads, seq, seq], True for
        # kept values.
        self.hidden_masks: tf.Tensor | None = None
        self.attention_masks: tf.Tensor | None = None
        if seeds is not None and (
            config.hidden_dropout_prob or config.attention_probs_dropout_prob
        ):
            self._draw(seeds, input_mask)

    def hidden(self, x: tf.Tensor, site: int) -> tf.Tensor:
        return _drop(
            x, self.hidden_masks, self._config.hidden_size, site, self._config.hidden_dropout_prob
        )

    def attention(self, x: tf.Tensor, layer: int) -> tf.Tensor:
        """Apply a layer's dropout to attention weights [batch, heads, seq, seq]."""
        heads = self._config.num_attention_heads
        rate = self._config.attention_probs_dropout_prob
        return _drop(x, self.attention_masks, heads, layer, rate)

    def _draw(self, seeds: tf.Tensor, input_mask: tf.Tensor) -> None:
        config = self._config
        layers = self._config.num_hidden_layers
        hidden_rate = config.hidden_dropout_prob
        attention_rate = config.attention_probs_dropout_prob
        batch, seq = tf.unstack(tf.shape(input_mask))
        lengths = tf.reduce_sum(input_mask, axis=1)
        per_token = (2 * layers + 1) * config.hidden_size * (hidden_rate > 0)
        per_pair = layers * config.num_attention_heads * (attention_rate > 0)
        # Compare rates in float32, as in BERT's graphs.
        threshold = {
            rate: round(float(np.float32(rate)) * 2**32) - 2**31
            for rate in (hidden_rate, attention_rate)
        }
        hidden = tf.TensorArray(tf.bool, batch, element_shape=[None, per_token], infer_shape=False)
        attention = tf.TensorArray(
            tf.bool, batch, element_shape=[per_pair, None, None], infer_shape=False
        )

        def draw(i: tf.Tensor, hidden: tf.TensorArray, attention: tf.TensorArray) -> tuple:
            length = lengths[i]
            hidden_count = lengths[i] * per_token
            count = hidden_count + length * length * per_pair
            bits = tf.random.stateless_uniform(
                [count], seeds[i], None, None, tf.int32, alg="philox"
            )
            kept = tf.reshape(bits[:hidden_count] >= threshold[hidden_rate], [length, per_token])
            pairs = tf.reshape(
                bits[hidden_count:] >= threshold[attention_rate], [per_pair, length, length]
            )
            padding = [0, seq - length]
            return (
                i + 1,
                hidden.write(i, kept),
                attention.write(i, tf.pad(pairs, [[0, 0], padding, padding])),
            )

        _, hidden, attention = tf.while_loop(
            lambda i, *_: i < batch, draw, [0, hidden, attention], parallel_iterations=4
        )
        self.hidden_masks = hidden.concat() if hidden_rate else None
        self.attention_masks = attention.stack() if attention_rate else None


def _drop(x: tf.Tensor, masks: tf.Tensor | None, size: int, site: int, rate: float) -> tf.Tensor:
    if masks is None:
        return x
    kept = masks[:, site * size : (site + 1) * size]
    scale = 1.0 / (1.0 - rate)

    @tf.custom_gradient
    def dropped(x: tf.Tensor) -> tuple:
        zero = tf.zeros([], x.dtype)
        return tf.where(kept, x * scale, zero), lambda upstream: tf.where(
            kept, upstream * scale, zero
        )

    return dropped(x)


def _frozen_layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    # Without a custom gradient, because TensorFlow would warn of it when it loads an export. One
    # batch norm of all rows is 2 % faster for 32 texts, but corrupts memory when two threads call
    # it, unless TensorFlow's optimiser replaces it.
    centred = x - tf.reduce_mean(x, axis=1, keepdims=True)
    variance = tf.reduce_mean(centred * centred, axis=1, keepdims=True)
    # In float32, a row's root would depend on its place among the rows: TensorFlow approximates the
    # roots of eight or sixteen rows, and computes those that are left.
    factor = tf.math.rsqrt(tf.cast(variance, tf.float64) + LAYER_NORM_EPS)
    return centred * (tf.cast(factor, tf.float32) * gamma) + beta


@tf.custom_gradient
def _layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple:
    centred = x - tf.reduce_mean(x, axis=1, keepdims=True)
    factor = tf.math.rsqrt(
        tf.reduce_mean(centred * centred, axis=1, keepdims=True) + LAYER_NORM_EPS
    )
    normed = centred * factor

    def gradient(upstream: tf.Tensor) -> tuple:
        scaled = upstream * gamma
        projection = tf.reduce_mean(scaled * normed, axis=1, keepdims=True)
        x_gradient = (
            scaled - tf.reduce_mean(scaled, axis=1, keepdims=True) - normed * projection
        ) * factor
        return x_gradient, tf.reduce_sum(upstream * normed, axis=0), tf.reduce_sum(upstream, axis=0)

    return normed * gamma + beta, gradient


# TF1's BERT approximates GELU (Hendrycks & Gimpel 2016) by tanh; others use the error function.
@tf.custom_gradient
def _gelu_tanh(x: tf.Tensor) -> tuple:
    square = x * x
    tanh = tf.tanh(x * (_TANH_SCALE + (_TANH_SCALE * _TANH_CUBE) * square))
    cdf = 0.5 * (1.0 + tanh)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        slope = _TANH_SCALE + (3.0 * _TANH_SCALE * _TANH_CUBE) * square
        return upstream * (cdf + (0.5 * x) * (1.0 - tanh * tanh) * slope)

    return x * cdf, gradient


@tf.custom_gradient
def _gelu_erf(x: tf.Tensor) -> tuple:
    cdf = 0.5 * (1.0 + tf.math.erf(x * _SQRT_HALF))

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return upstream * (cdf + x * (_NORMAL_DENSITY * tf.exp(-0.5 * x * x)))

    return x * cdf, gradient


def _portable_layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tf.Tensor:
    # onnxruntime makes one operation of exactly these.
    centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.pow(centred, 2.0), axis=-1, keepdims=True)
    return centred / tf.sqrt(variance + LAYER_NORM_EPS) * gamma + beta


def _portable_gelu_tanh(x: tf.Tensor) -> tf.Tensor:
    tanh = tf.tanh(_TANH_SCALE * (x + _TANH_CUBE * tf.pow(x, 3.0)))
    return (0.5 * x) * (tanh + 1.0)


def _portable_gelu_erf(x: tf.Tensor) -> tf.Tensor:
    return 0.5 * (x * (tf.math.erf(x / (1.0 / _SQRT_HALF)) + 1.0))


# These are the other activations of a configuration.
_SIMPLE: _Operations = {"relu": tf.nn.relu, "tanh": tf.tanh, "linear": tf.identity}
_FROZEN: _Operations = _SIMPLE | {
    "layer_norm": _frozen_layer_norm,
    "gelu_tanh": lambda x: tf.nn.gelu(x, approximate=True),
    "gelu_erf": lambda x: tf.nn.gelu(x, approximate=False),
}
_PLAIN: _Operations = _SIMPLE | {
    "layer_norm": _layer_norm,
    "gelu_tanh": _gelu_tanh,
    "gelu_erf": _gelu_erf,
}
_PORTABLE: _Operations = _PLAIN | {
    "layer_norm": _portable_layer_norm,
    "gelu_tanh": _portable_gelu_tanh,
    "gelu_erf": _portable_gelu_erf,
}
