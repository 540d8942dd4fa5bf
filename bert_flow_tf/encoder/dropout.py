"""BERT's dropout with masks that depend on a sentence's seed and length alone."""

import numpy as np
import tensorflow as tf

from bert_flow_tf.encoder.convert.bert_config import BertConfig


class Dropout:
    """Dropout of a batch of sentences, each with masks from its own seed.

    A sentence's masks depend on its seed and length alone, not on what shares its batch. Sites are numbered: `hidden`
    has 0 for the embeddings and 2 i + 1 and 2 i + 2 for layer i, `attention` has the layer's number.

    Args:
      config: layers, width, heads and rates of the BERT (Devlin et al. 2019).
      seeds: int64 [batch, 2]; None to drop nothing.
      input_mask: int32 [batch, seq], 1 up to a sentence's end.
    """

    def __init__(self, config: BertConfig, seeds: tf.Tensor | None, input_mask: tf.Tensor) -> None:
        self._config = config
        # Bool [tokens, sites * width] and [batch, layers * heads, seq, seq]: True for what is kept.
        self.hidden_masks: tf.Tensor | None = None
        self.attention_masks: tf.Tensor | None = None
        if seeds is not None and (config.hidden_dropout_prob or config.attention_probs_dropout_prob):
            self._draw(seeds, input_mask)

    def hidden(self, x: tf.Tensor, site: int) -> tf.Tensor:
        """`x` [tokens, width] after the dropout of a site."""
        return _drop(x, self.hidden_masks, self._config.hidden_size, site, self._config.hidden_dropout_prob)

    def attention(self, x: tf.Tensor, layer: int) -> tf.Tensor:
        """Attention's weights `x` [batch, heads, seq, seq] after the dropout of a layer."""
        heads, rate = self._config.num_attention_heads, self._config.attention_probs_dropout_prob
        return _drop(x, self.attention_masks, heads, layer, rate)

    def _draw(self, seeds: tf.Tensor, input_mask: tf.Tensor) -> None:
        config, layers = self._config, self._config.num_hidden_layers
        hidden_rate, attention_rate = config.hidden_dropout_prob, config.attention_probs_dropout_prob
        batch, seq = tf.unstack(tf.shape(input_mask))
        lengths = tf.reduce_sum(input_mask, axis=1)
        per_token = (2 * layers + 1) * config.hidden_size * (hidden_rate > 0)
        per_pair = layers * config.num_attention_heads * (attention_rate > 0)
        # Rates are compared in float32, as BERT's graphs hold them.
        least = {rate: round(float(np.float32(rate)) * 2**32) - 2**31 for rate in (hidden_rate, attention_rate)}
        hidden = tf.TensorArray(tf.bool, batch, element_shape=[None, per_token], infer_shape=False)
        attention = tf.TensorArray(tf.bool, batch, element_shape=[per_pair, None, None], infer_shape=False)

        def draw(i: tf.Tensor, hidden: tf.TensorArray, attention: tf.TensorArray) -> tuple:
            length = lengths[i]
            of_tokens = length * per_token
            count = of_tokens + length * length * per_pair
            bits = tf.random.stateless_uniform([count], seeds[i], None, None, tf.int32, alg="philox")
            kept = tf.reshape(bits[:of_tokens] >= least[hidden_rate], [length, per_token])
            pairs = tf.reshape(bits[of_tokens:] >= least[attention_rate], [per_pair, length, length])
            after = [0, seq - length]
            return i + 1, hidden.write(i, kept), attention.write(i, tf.pad(pairs, [[0, 0], after, after]))

        state = [0, hidden, attention]
        _, hidden, attention = tf.while_loop(lambda i, *_: i < batch, draw, state, parallel_iterations=4)
        self.hidden_masks = hidden.concat() if hidden_rate else None
        self.attention_masks = attention.stack() if attention_rate else None


def _drop(x: tf.Tensor, masks: tf.Tensor | None, size: int, site: int, rate: float) -> tf.Tensor:
    """`x` scaled by 1 / (1 - rate) where the site's mask is True, and 0 elsewhere."""
    if masks is None:
        return x
    kept, scale = masks[:, site * size : (site + 1) * size], 1.0 / (1.0 - rate)

    @tf.custom_gradient
    def dropped(x: tf.Tensor) -> tuple:
        zero = tf.zeros([], x.dtype)
        return tf.where(kept, x * scale, zero), lambda upstream: tf.where(kept, upstream * scale, zero)

    return dropped(x)
