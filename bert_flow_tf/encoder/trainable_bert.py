"""BERT with dropout and gradients over a TF-Hub encoder's own variables, computed at the sentences' tokens alone."""

import hashlib
import os
import pathlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import logging

from bert_flow_tf.encoder.convert.bert_config import LAYER_NORM_EPS
from bert_flow_tf.encoder.dropout import DropoutRates, draw_masks, drop
from bert_flow_tf.encoder.fused_bert import (
    TOLERANCE,
    Drop,
    FusedBert,
    Inputs,
    Places,
    Variables,
    attention_bias,
    probe_inputs,
)
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import write_atomically
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.files.user_cache import cache_root

# Of GELU's approximation by tanh(_TANH_SCALE * (x + _TANH_CUBE * x³)).
_TANH_SCALE, _TANH_CUBE = 0.7978845608028654, 0.044715
_SQRT_HALF, _NORMAL_DENSITY = 0.7071067811865476, 0.3989422804014327


class TrainableBert(FusedBert):
    """`FusedBert` in training: with dropout, and with gradients in few operations.

    The rows of all products, norms and activations are the tokens of the batch: padding is cut out before the first
    layer, put back where attention needs it, and 0 in the outputs.

    Args:
      variables, approximate_gelu: as of `FusedBert`.
      rates: of dropout.
      frozen: whether nothing needs gradients; norms and activations are then computed as in `FusedBert`.
    """

    def __init__(
        self, variables: Variables, *, approximate_gelu: bool, rates: DropoutRates, frozen: bool = False
    ) -> None:
        super().__init__(variables, approximate_gelu=approximate_gelu)
        self.rates = rates
        self._frozen = frozen

    def with_dropout(self, inputs: Inputs, seeds: tf.Tensor | None) -> dict[str, Any]:
        """The outputs as `FusedBert` gives them, 0 at padding; `seeds`, int64 [batch, 2], are of `draw_masks`.

        `input_mask` must be 1 up to a sentence's end, and 0 after it. Without seeds nothing is dropped. XLA compiles
        none of it: it would have to know the number of tokens before it sees them.
        """
        if tf.executing_eagerly():
            return self._with_dropout(inputs, seeds)
        with tf.xla.experimental.jit_scope(compile_ops=False):
            return self._with_dropout(inputs, seeds)

    def _with_dropout(self, inputs: Inputs, seeds: tf.Tensor | None) -> dict[str, Any]:
        ids, mask = inputs["input_word_ids"], inputs["input_mask"]
        words, positions, types = self._tables()
        places = _Tokens(mask)
        num_types, width = types.shape
        # As in TF1: one slice per token for words, and dense gradients for what recurs in every sentence. Clipping by
        # the global norm depends on it.
        rows = tf.gather(words, places.pick(ids))
        rows += tf.matmul(tf.one_hot(places.pick(inputs["input_type_ids"]), num_types), types)
        all_positions = tf.convert_to_tensor(positions)[: places.length]
        rows += places.rows(tf.broadcast_to(all_positions, [places.batch, places.length, width]))
        dropped = self._dropout(seeds, mask)
        rows = dropped(self._norm(rows, "embeddings/layer_norm"), ("hidden", 0))
        bias = attention_bias(mask, rows.dtype)
        outputs = []
        for i in range(self.num_layers):
            rows = self._layer(i, rows, places, bias, dropped)
            outputs.append(places.spread(rows))
        return self._outputs(outputs)

    def _dropout(self, seeds: tf.Tensor | None, mask: tf.Tensor) -> Drop:
        if seeds is None or self.rates == DropoutRates():
            return lambda x, site: x
        width, heads, _ = self._variables["transformer/layer_0/self_attention/query/kernel"].shape
        masks = draw_masks(self.rates, seeds, mask, layers=self.num_layers, width=width, heads=heads)

        of_kind = {
            "hidden": (masks.hidden, width, self.rates.hidden),
            "attention": (masks.attention, heads, self.rates.attention),
        }

        def dropped(x: tf.Tensor, site: tuple[str, int]) -> tf.Tensor:
            kind, index = site
            kept, size, rate = of_kind[kind]
            return x if kept is None else drop(x, kept[:, index * size : (index + 1) * size], rate)

        return dropped

    def _projected(
        self, attention: str, asking: tf.Tensor, rows: tf.Tensor, places: Places, first_only: bool
    ) -> list[tf.Tensor]:
        # One product of three times the width, which takes half the time of three.
        width, heads, size = self._variables[f"{attention}/query/kernel"].shape
        kernels, biases = (
            [tf.convert_to_tensor(self._variables[f"{attention}/{name}/{part}"]) for name in ("query", "key", "value")]
            for part in ("kernel", "bias")
        )
        kernel = tf.concat([tf.reshape(each, [width, width]) for each in kernels], axis=1)
        bias = tf.concat([tf.reshape(each, [width]) for each in biases], axis=0)
        x = places.spread(tf.nn.bias_add(tf.matmul(rows, kernel), bias))
        x = tf.reshape(x, [places.batch, -1, 3, heads, size])
        return tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]))

    def _gelu(self, x: tf.Tensor) -> tf.Tensor:
        if self._frozen:
            return super()._gelu(x)
        return _gelu_by_tanh(x) if self.approximate_gelu else _gelu_by_erf(x)

    def _norm(self, x: tf.Tensor, path: str) -> tf.Tensor:
        if self._frozen:
            return super()._norm(x, path)
        gamma, beta = (tf.convert_to_tensor(self._variables[f"{path}/{name}"]) for name in ("gamma", "beta"))
        return _layer_norm(x, gamma, beta)


class _Tokens:
    """`Places` of a batch whose rows are the tokens: the positions of `mask`, int32 [batch, seq], that are 1."""

    def __init__(self, mask: tf.Tensor) -> None:
        self.batch, self.length = tf.unstack(tf.shape(mask))
        flat = tf.reshape(mask, [-1])
        self._positions = tf.cast(tf.where(flat > 0)[:, 0], tf.int32)
        # Of each position its row; of padding the row after the last, which is 0.
        self._rows = tf.where(flat > 0, tf.cumsum(flat) - 1, tf.size(self._positions))

    def pick(self, values: tf.Tensor) -> tf.Tensor:
        """[n] of [batch, seq], at the tokens."""
        return tf.gather(tf.reshape(values, [-1]), self._positions)

    # Each of the two is the other one's gradient; TensorFlow would add up rows that are met once.
    def spread(self, rows: tf.Tensor) -> tf.Tensor:
        @tf.custom_gradient
        def spread(rows: tf.Tensor) -> tuple:
            return self._spread(rows), self._rows_of

        return spread(rows)

    def rows(self, states: tf.Tensor) -> tf.Tensor:
        @tf.custom_gradient
        def rows(states: tf.Tensor) -> tuple:
            return self._rows_of(states), self._spread

        return rows(states)

    def _spread(self, rows: tf.Tensor) -> tf.Tensor:
        padded = tf.gather(tf.pad(rows, [[0, 1], [0, 0]]), self._rows)
        return tf.reshape(padded, [self.batch, self.length, rows.shape[-1]])

    def _rows_of(self, states: tf.Tensor) -> tf.Tensor:
        return tf.gather(tf.reshape(states, [-1, states.shape[-1]]), self._positions)


@tf.custom_gradient
def _layer_norm(x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor) -> tuple:
    """Layer norm of each row of `x` [n, width] (Ba et al. 2016), with its gradient in few operations."""
    centred = x - tf.reduce_mean(x, axis=1, keepdims=True)
    factor = tf.math.rsqrt(tf.reduce_mean(centred * centred, axis=1, keepdims=True) + LAYER_NORM_EPS)
    normed = centred * factor

    def gradient(upstream: tf.Tensor) -> tuple:
        scaled = upstream * gamma
        along = tf.reduce_mean(scaled * normed, axis=1, keepdims=True)
        of_x = (scaled - tf.reduce_mean(scaled, axis=1, keepdims=True) - normed * along) * factor
        return of_x, tf.reduce_sum(upstream * normed, axis=0), tf.reduce_sum(upstream, axis=0)

    return normed * gamma + beta, gradient


# Both GELUs are of Hendrycks & Gimpel 2016; TF1's BERT has the one by tanh.
@tf.custom_gradient
def _gelu_by_tanh(x: tf.Tensor) -> tuple:
    square = x * x
    tanh = tf.tanh(x * (_TANH_SCALE + (_TANH_SCALE * _TANH_CUBE) * square))
    share = 0.5 * (1.0 + tanh)

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        slope = _TANH_SCALE + (3.0 * _TANH_SCALE * _TANH_CUBE) * square
        return upstream * (share + (0.5 * x) * (1.0 - tanh * tanh) * slope)

    return x * share, gradient


@tf.custom_gradient
def _gelu_by_erf(x: tf.Tensor) -> tuple:
    share = 0.5 * (1.0 + tf.math.erf(x * _SQRT_HALF))

    def gradient(upstream: tf.Tensor) -> tf.Tensor:
        return upstream * (share + x * (_NORMAL_DENSITY * tf.exp(-0.5 * x * x)))

    return x * share, gradient


def proved_before(graph: pathlib.Path, prove: Callable[[], bool]) -> bool:
    """Whether `prove` said so, now or at an earlier time, of a SavedModel's file; what it says is kept in the cache.

    To prove it takes two seconds. Another file, TensorFlow, or version of what computes is proved again.
    """
    files = [graph, *(pathlib.Path(__file__).with_name(f"{name}.py") for name in ("trainable_bert", "fused_bert"))]
    digest = hashlib.sha256("".join([tf.__version__, *map(file_digest, files)]).encode()).hexdigest()
    mark = cache_root() / "proved" / digest
    # Not `Path.exists`, which raises where it may not look.
    if os.path.exists(mark):
        return True
    is_proved = prove()
    if is_proved:
        try:
            write_atomically(mark, "The gradients of its fused form are those of this SavedModel.\n")
        except UserError as error:
            logging.info("%s; it will be proved again", error)
    return is_proved


def has_gradients_of(
    reference: Callable[[Inputs], dict[str, Any]], trainable: TrainableBert, variables: Variables
) -> bool:
    """Whether `trainable` without dropout has the gradients of `reference`, up to rounding, for all the variables.

    `reference` is the SavedModel's function, dropout off; both run on two sentences of different lengths.
    """
    inputs = probe_inputs(variables)
    expected = _gradients(reference, inputs, variables)
    found = _gradients(lambda inputs: trainable.with_dropout(inputs, None), inputs, variables)
    largest = max(float(tf.reduce_max(tf.abs(gradient))) for gradient in expected)
    deviations = [float(tf.reduce_max(tf.abs(a - b))) for a, b in zip(found, expected, strict=True)]
    return max(deviations) <= TOLERANCE * largest


def _gradients(function: Callable[[Inputs], dict[str, Any]], inputs: Inputs, variables: Variables) -> list[tf.Tensor]:
    """Gradients, for every variable, of a sum of all outputs in which each number has a weight of its own."""
    mask = tf.cast(inputs["input_mask"], tf.float32)[:, :, tf.newaxis]
    with tf.GradientTape() as tape:
        outputs = function(inputs)
        states = [state * mask for state in outputs["encoder_outputs"]] + [outputs["pooled_output"]]
        total = tf.add_n(
            [tf.reduce_sum(tf.sin(tf.range(tf.size(x), dtype=x.dtype)) * tf.reshape(x, [-1])) for x in states]
        )
    gradients = tape.gradient(total, list(variables.values()), unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return [tf.convert_to_tensor(each) for each in gradients]
