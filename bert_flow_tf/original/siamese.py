"""The siamese model and its training step with two optimisers."""

from typing import Any

import tensorflow as tf
import tf_keras

from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.pooling import check_low_dim, reduce_dimension
from bert_flow_tf.encoder.similarities import cosine_similarity
from bert_flow_tf.original.settings import LossSettings
from bert_flow_tf.training.devices import replica_sum
from glow.flow import Glow
from glow.optimizer import apply_clipped


class SiameseBertFlow(tf_keras.Model):
    """Embed pairs by one encoder and flow (Li et al. 2020).

    Inputs are a dictionary with either `SentenceEncoder`'s token tensors, int32 [n, 2, t], and
    `occurrence`, int64 [n, 2]; or `embedding`, float32 [n, 2, D], from a frozen encoder. Labels are
    float32 [n] in [0, 1] for regression, else int32 [n] class ids. If `losses.num_examples` > 0,
    labels of -1 or less are missing.

    Args:
      num_labels: number of classes; None for regression on cosine similarity.
      low_dim: embedding size after `reduce_dimension`; not positive for all channels.
      losses: settings of the losses; by default, all pairs have a supervised loss, and the flow has
        none.
      seed: seed of the classifier's initial values and of the encoder's dropout.
    """

    def __init__(
        self,
        encoder: SentenceEncoder,
        flow: Glow | None,
        *,
        num_labels: int | None = None,
        low_dim: int = -1,
        losses: LossSettings | None = None,
        seed: int = 1234,
    ) -> None:
        super().__init__(name="siamese_bert_flow")
        check_low_dim(low_dim, encoder.embedding_size)
        # Every replica logs values of the global batch, which Keras must not sum.
        self.distribute_reduction_method = "first"
        self.encoder: Any = encoder
        self.flow: Any = flow
        self._seed = seed
        self.num_labels = num_labels
        self.low_dim = low_dim
        self.loss_settings = losses or LossSettings()
        self.output_size = low_dim if low_dim > 0 else encoder.embedding_size
        self.output_weights = None
        if num_labels:
            shape = [num_labels, 3 * self.output_size]
            initial = tf.random.stateless_truncated_normal(shape, seed=[seed, 0], stddev=0.02)
            self.output_weights = tf.Variable(initial, name="loss/output_weights")

    @property
    def supervised_variables(self) -> list[tf.Variable]:
        """The supervised loss's variables, without a flow that has its own loss."""
        classifier = [] if self.output_weights is None else [self.output_weights]
        with_flow = self.flow is not None and not self.loss_settings.flow_loss
        return [
            *self.encoder.pooled_variables,
            *classifier,
            *(self.flow.trainable_variables if with_flow else ()),
        ]

    @property
    def flow_variables(self) -> list[tf.Variable]:
        return (
            list(self.flow.trainable_variables)
            if self.flow is not None and self.loss_settings.flow_loss
            else []
        )

    @property
    def learned_variables(self) -> list[tf.Variable]:
        """The variables of both optimisers."""
        return self.supervised_variables + self.flow_variables

    def compile(self, optimizer: Any, flow_optimizer: Any = None, **kwargs: Any) -> None:
        """Set both optimisers and build them, so that they can be restored."""
        super().compile(optimizer=optimizer, **kwargs)
        self.flow_optimizer = flow_optimizer
        optimizer.build([] if self.loss_settings.encoder_is_frozen else self.supervised_variables)
        if flow_optimizer is not None:
            flow_optimizer.build(self.flow_variables)

    def embed(self, inputs: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Return embeddings before the flow, [2n, D]; a pair's rows are adjacent."""
        if "embedding" in inputs:
            return tf.reshape(inputs["embedding"], [-1, inputs["embedding"].shape[-1]])
        # Flatten pairs [n, 2, …] to sentences [2n, …].
        tokens = {
            name: tf.reshape(v, tf.concat([[-1], tf.shape(v)[2:]], axis=0))
            for name, v in inputs.items()
        }
        return self.encoder(tokens, training=training, dropout_seed=self._seed)

    def call(self, inputs: dict[str, tf.Tensor], training: bool = False) -> dict[str, tf.Tensor]:
        """Return both embeddings, their cosine and the flow's loss.

        The keys are `embedding_a`, `embedding_b` [n, output_size], `cos_similarity` [n] and, with a
        flow, `flow_example_loss` [n], the sum of both sentences' bits per dimension.
        """
        u = self.embed(inputs, training)
        outputs = {}
        if self.flow is not None:
            step = self._unique_step() if training and self.flow.config.coupling_dropout else None
            u, bits_per_dim = self.flow.forward_and_bits_per_dim(u, step)
            outputs["flow_example_loss"] = tf.reduce_sum(tf.reshape(bits_per_dim, [-1, 2]), axis=-1)
        pairs = tf.reshape(reduce_dimension(u, self.low_dim), [-1, 2, self.output_size])
        a, b = pairs[:, 0], pairs[:, 1]
        return outputs | {
            "embedding_a": a,
            "embedding_b": b,
            "cos_similarity": cosine_similarity(a, b),
        }

    def _unique_step(self) -> tf.Tensor:
        """Return a number that is unique over steps and replicas."""
        replicas = tf.distribute.get_replica_context()
        step = (self.flow_optimizer or self.optimizer).iterations * replicas.num_replicas_in_sync
        return step + tf.cast(replicas.replica_id_in_sync_group, step.dtype)

    def classify(self, outputs: dict[str, tf.Tensor]) -> tf.Tensor | None:
        """Return logits [n, num_labels], `[a, b, |a - b|] Wᵀ`; None for regression."""
        if self.num_labels is None:
            return None
        a, b = outputs["embedding_a"], outputs["embedding_b"]
        return tf.matmul(
            tf.concat([a, b, tf.abs(a - b)], axis=-1), self.output_weights, transpose_b=True
        )

    def supervised_example_loss(
        self, outputs: dict[str, tf.Tensor], labels: tf.Tensor
    ) -> tf.Tensor:
        """Return each pair's supervised loss [n] as in the original's `create_model`."""
        if self.num_labels is None:
            loss = tf.square(outputs["cos_similarity"] - labels)
        else:
            log_probs = tf.nn.log_softmax(self.classify(outputs), axis=-1)
            loss = -tf.reduce_sum(tf.one_hot(labels, self.num_labels) * log_probs, axis=-1)
        if self.loss_settings.num_examples == 0:
            loss = tf.zeros_like(loss)
        elif self.loss_settings.num_examples > 0:
            loss *= tf.cast(labels > -1, loss.dtype)
        if self.loss_settings.l2_penalty > 0:
            norms = [tf.norm(outputs[name], axis=-1) for name in ("embedding_a", "embedding_b")]
            loss += self.loss_settings.l2_penalty * (norms[0] + norms[1])
        return loss

    @tf.autograph.experimental.do_not_convert
    def train_step(self, data: tuple[dict[str, tf.Tensor], tf.Tensor]) -> dict[str, tf.Tensor]:
        """Take one step of both optimisers; return the global batch's logs.

        Each optimiser's gradients are summed over replicas and then clipped to global norm 1.
        """
        inputs, labels = data
        # With this weight, the replicas' sums add up to the mean over the global batch.
        weight = 1.0 / replica_sum(tf.cast(tf.shape(labels)[0], tf.float32))
        supervised = self.supervised_variables
        flow_variables = self.flow_variables
        with tf.GradientTape(persistent=True) as tape:
            outputs = self(inputs, training=True)
            loss = weight * tf.reduce_sum(self.supervised_example_loss(outputs, labels))
            flow_loss = weight * tf.reduce_sum(outputs.get("flow_example_loss", 0.0))
        total = loss + flow_loss if self.loss_settings.flow_loss else loss
        logs = {
            "loss": replica_sum(total),
            "supervised_loss": replica_sum(loss),
            "flow_loss": replica_sum(flow_loss),
        }
        if not self.loss_settings.encoder_is_frozen:
            gradients = tape.gradient(loss, supervised)
            logs["grad_norm"] = apply_clipped(self.optimizer, gradients, supervised)
        if flow_variables:
            gradients = tape.gradient(flow_loss, flow_variables)
            logs["flow_grad_norm"] = apply_clipped(self.flow_optimizer, gradients, flow_variables)
        return logs
