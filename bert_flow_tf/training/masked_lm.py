"""BERT with its head for masked language modelling."""

from typing import Any

import tensorflow as tf
import tf_keras

from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.training.devices import replica_sum
from glow.optimizer import apply_clipped

NOT_PREDICTED = -1  # label of positions that are not predicted


class MaskedLanguageModel(tf_keras.Model):
    """Predict the word pieces at masked positions (Devlin et al. 2019).

    The head is tf-models' `MaskedLM`. It maps the last layer's states at the predicted positions by
    a dense layer, an activation, a layer norm, and a product with the encoder's word embeddings
    plus a bias.

    Inputs are `SentenceEncoder`'s; labels are int32 [n, t]: ids of word pieces, or `NOT_PREDICTED`.

    Args:
      activation: the head's activation, as a name or function for Keras.
      initializer_range: standard deviation of the kernel's initial values.
      seed: seed of these values and of dropout.
    """

    def __init__(
        self,
        encoder: SentenceEncoder,
        *,
        activation: Any,
        initializer_range: float = 0.02,
        seed: int = 1234,
    ) -> None:
        super().__init__(name="masked_language_model")
        # Every replica logs values of the global batch, which Keras must not sum.
        self.distribute_reduction_method = "first"
        table = encoder.word_embeddings
        assert table is not None, "a BERT has word embeddings"
        self.encoder: Any = encoder
        self._seed = seed
        # It takes seconds to import, and only the extra `models` has it.
        from official.nlp.modeling.layers import masked_lm

        width = encoder.hidden_size
        initial = tf_keras.initializers.TruncatedNormal(stddev=initializer_range, seed=seed)
        self.head: Any = masked_lm.MaskedLM(table, activation, initial, name="cls/predictions")
        # Build the head here, so that its variables can be restored. Weight decay depends on their
        # names, as in TF1.
        with tf.name_scope(self.head.name):
            self.head.build([None, None, width])
            # The word embeddings may be narrower than the states.
            for layer, inputs in ((self.head.dense, width), (self.head.layer_norm, table.shape[1])):
                with tf.name_scope(layer.name):
                    layer.build([None, inputs])
        weights = (*self.head.dense.weights, *self.head.layer_norm.weights, self.head.bias)
        self.head_variables = {v.name.removesuffix(":0"): v for v in weights}

    @property
    def learned_variables(self) -> list[tf.Variable]:
        """The trained variables: the encoder's `pooled_variables` and the head's."""
        return [*self.encoder.pooled_variables, *self.head_variables.values()]

    def compile(self, optimizer: Any = None, **kwargs: Any) -> None:
        """Set the optimiser and build it, so that it can be restored."""
        super().compile(optimizer=optimizer, **kwargs)
        optimizer.build(self.learned_variables)

    def token_losses(
        self, inputs: dict[str, tf.Tensor], labels: tf.Tensor, training: bool = False
    ) -> tf.Tensor:
        """Return the cross-entropy of each predicted position, float32 [m], in nats."""
        states = self.encoder.token_states(inputs, training=training, dropout_seed=self._seed)
        labels = tf.reshape(labels, [-1])
        positions = tf.cast(tf.where(labels != NOT_PREDICTED)[:, 0], tf.int32)
        # Sentences have different numbers of predictions, so pass the batch to the head as one long
        # sentence.
        logits = self.head(
            tf.reshape(states, [1, -1, self.encoder.hidden_size]), positions[tf.newaxis]
        )[0]
        return tf.nn.sparse_softmax_cross_entropy_with_logits(tf.gather(labels, positions), logits)

    @tf.autograph.experimental.do_not_convert
    def train_step(self, data: tuple[dict[str, tf.Tensor], tf.Tensor]) -> dict[str, tf.Tensor]:
        """Take a step on the mean loss; clip gradients to norm 1."""
        loss, gradients = self.loss_and_gradients(*data)
        norm = apply_clipped(self.optimizer, gradients, self.learned_variables)
        return {"loss": replica_sum(loss), "grad_norm": norm}

    def loss_and_gradients(
        self, inputs: dict[str, tf.Tensor], labels: tf.Tensor
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """Return this replica's part of the global mean loss, and its gradients."""
        predicted = replica_sum(tf.reduce_sum(tf.cast(labels != NOT_PREDICTED, tf.float32)))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(self.token_losses(inputs, labels, training=True)) / tf.maximum(
                predicted, 1.0
            )
        return loss, tape.gradient(loss, self.learned_variables)
