"""Encoder and flow as one Keras model, for an own training loop."""

from collections.abc import Callable

import tensorflow as tf
import tf_keras

from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.tokenizer import Tokenizer
from glow.chain import Chain


class TrainableModel(tf_keras.Model):
    """Map sentences to their embeddings and their flow loss.

    It has the variables of the model whose `trainable` made it, so `encode`, `save` and `export` of
    that model see what a training loop changes. A call with `training=True` applies the dropout of
    the encoder and of the flow, at random.

        >>> network = model.trainable(encoder=True)
        >>> found = network(tf.constant(sentences[:4]), training=True)
        >>> found["embeddings"].shape, found["bits_per_dim"].shape
        (TensorShape([4, 32]), TensorShape([4]))
    """

    def __init__(
        self,
        encoder: SentenceEncoder,
        flow: Chain,
        tokenizer: Tokenizer,
        *,
        trains_encoder: bool,
        max_seq_length: int,
        reduce: Callable[[tf.Tensor], tf.Tensor],
        prompt: str,
    ) -> None:
        super().__init__(name="bert_flow")
        self.encoder = encoder
        self.flow = flow
        self._trains_encoder = trains_encoder
        self._tokenizer = tokenizer
        self._max_seq_length = max_seq_length
        self._reduce = reduce
        self._prompt = prompt

    @property
    def trainable_weights(self) -> list[tf.Variable]:
        """The flow's variables, and a trained encoder's that embeddings depend on."""
        encoder = self.encoder.pooled_variables if self._trains_encoder else []
        return [*encoder, *self.flow.trainable_variables]

    @tf.autograph.experimental.do_not_convert
    def call(self, sentences: tf.Tensor, training: bool = False) -> dict[str, tf.Tensor]:
        """Return `encode`'s "embeddings" [n, D] and the flow loss "bits_per_dim" [n].

        Args:
          sentences: strings [n]; the default prompt is put before them, as in `encode`.
        """
        texts = tf.strings.join([self._prompt, sentences]) if self._prompt else sentences
        tokens = self._tokenizer(texts, self._max_seq_length)
        u = self.encoder(tokens, training=training and self._trains_encoder)
        # Each step has its own masks of `coupling_dropout`.
        step = tf.random.uniform([], maxval=2**31 - 1, dtype=tf.int32) if training else None
        z, bits_per_dim = self.flow.forward_and_bits_per_dim(u, step)
        return {"embeddings": self._reduce(z), "bits_per_dim": bits_per_dim}
