"""An encoder with its pooling, as a Keras layer."""

import copy
import re
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras

from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.encoder.bert import Inputs, Outputs
from bert_flow_tf.encoder.pooling import pooling
from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS, TOKEN_SPECS
from bert_flow_tf.encoder.weights import Pretrained, SourceRecord
from glow.tracing import traced_once


class SentenceEncoder(tf_keras.layers.Layer):
    """Map an encoder's inputs, int32 [batch, seq], to sentence embeddings.

    Args:
      sentence_embedding_type: name of the pooling, see `pooling.pooling`.
      trainable: True to train the variables. A call with `training=True` applies dropout in either
        case.

    Attributes:
      variables_by_name: the encoder's variables, by TF1's names or the SavedModel's.
      traced_embed: `embed`, traced at its first call.
      traced_dropout: a call with dropout, of inputs with `occurrence` and a seed, traced likewise.
      max_seq_length, num_types: number of positions and of token types; None if unknown.

    Raises:
      UserError: the encoder cannot be loaded, or the pooling is unknown.
    """

    def __init__(
        self, source: EncoderSource, sentence_embedding_type: str, *, trainable: bool
    ) -> None:
        super().__init__(trainable=trainable, name="sentence_encoder")
        self.source = source
        self._encoder: Any = source.pretrained.network(trainable=trainable)
        self.num_layers = self._encoder.num_layers
        self.hidden_size = self._encoder.hidden_size
        # Keras tracks variables in an attribute, in this order, which clipping by the global norm
        # depends on.
        self._in_order = list(self._encoder.variables.values())
        self._set_pooling(sentence_embedding_type)
        tables = map(self._table, ("position_embedding", "type_embeddings"))
        self.max_seq_length, self.num_types = (
            None if table is None else table.shape[0] for table in tables
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        # A copy's functions must compute with the copy's variables.
        self._set_functions()

    def with_pooling(self, sentence_embedding_type: str) -> "SentenceEncoder":
        encoder = copy.copy(self)
        encoder._set_pooling(sentence_embedding_type)
        return encoder

    def as_trainable(self) -> "SentenceEncoder":
        """Return an encoder with the same weights, whose variables can be trained."""
        if self.trainable:
            return self
        encoder = SentenceEncoder(self.source, self.sentence_embedding_type, trainable=True)
        for name, variable in encoder.variables_by_name.items():
            variable.assign(self.variables_by_name[name])
        return encoder

    def in_bfloat16(self) -> "SentenceEncoder":
        """Return a copy that computes matrix products in bfloat16."""
        encoder = self.with_pooling(self.sentence_embedding_type)
        encoder._encoder = self._encoder.in_bfloat16()
        return encoder

    @tf.__internal__.tracking.no_automatic_dependency_tracking
    def _set_pooling(self, sentence_embedding_type: str) -> None:
        self.sentence_embedding_type = sentence_embedding_type
        self.pooling = pooling(sentence_embedding_type, self.num_layers)
        pooler = self._table("pooler/dense/kernel")
        if not self.pooling.layers and pooler is not None and not tf.reduce_any(pooler != 0):
            # A missing pooler is read as zeros.
            found = f"found {sentence_embedding_type!r}, but {self.source.bert_hub} has no pooler"
            raise ArgumentError(f"pooling: {found}; use another pooling, such as paper-cls")
        self.embedding_size = self.hidden_size * (
            len(self.pooling.layers) if self.pooling.concatenate else 1
        )
        self._set_functions()

    def _set_functions(self) -> None:
        # All users of an encoder call this function, so that it is traced only once.
        self.traced_embed = traced_once(self.embed, TOKEN_SPECS)
        self.traced_dropout = traced_once(
            lambda inputs, seed: self(inputs, training=True, dropout_seed=seed),
            TOKEN_SPECS | {"occurrence": tf.TensorSpec([None], tf.int64)},
            tf.TensorSpec([], tf.int64),
        )

    def call(
        self, inputs: Inputs, training: bool = False, dropout_seed: int | tf.Tensor = 0
    ) -> tf.Tensor:
        """Return embeddings [batch, embedding_size].

        In training, `dropout_seed` and `inputs["occurrence"]` seed each sentence's dropout. The
        occurrence, int64 [batch], is the sentence's number in a run; without it, dropout is random.
        """
        outputs = self._outputs(inputs, training, dropout_seed, self.pooling.first_token_only)
        return self.pooling(outputs, inputs["input_mask"])

    def embed(
        self,
        inputs: Inputs,
        weights: Mapping[str, tf.Tensor] | None = None,
        portable: bool = False,
    ) -> tf.Tensor:
        """Return embeddings [batch, embedding_size] without dropout.

        Args:
          weights: with `portable`, what a BERT computes with instead of its variables, by name.
          portable: True for operations of a BERT that ONNX has.
        """
        if not portable:
            return self(inputs, training=False)
        outputs = self._encoder.portable(weights)(
            inputs, first_token_only=self.pooling.first_token_only
        )
        return self.pooling(outputs, inputs["input_mask"])

    def token_states(
        self, inputs: Inputs, training: bool = False, dropout_seed: int = 0
    ) -> tf.Tensor:
        """Return the last layer's states [batch, seq, hidden_size]."""
        return self._outputs(inputs, training, dropout_seed)["sequence_output"]

    @tf.autograph.experimental.do_not_convert
    def _outputs(
        self,
        inputs: Inputs,
        training: bool,
        dropout_seed: int | tf.Tensor,
        first_token_only: bool = False,
    ) -> Outputs:
        tokens = {name: inputs[name] for name in TOKEN_INPUTS}
        if not training:
            return self._encoder(tokens, first_token_only=first_token_only)
        numbers = inputs.get("occurrence")
        if numbers is None:
            numbers = tf.random.uniform(
                tf.shape(tokens["input_mask"])[:1], maxval=tf.int64.max, dtype=tf.int64
            )
        seeds = tf.stack([tf.fill(tf.shape(numbers), tf.cast(dropout_seed, tf.int64)), numbers], 1)
        return self._encoder(tokens, seeds, training=True)

    @property
    def variables_by_name(self) -> dict[str, tf.Variable]:
        return self._encoder.variables

    @property
    def word_embeddings(self) -> tf.Variable | None:
        """The table of word embeddings; None if a SavedModel's is unknown."""
        return self._table("word_embeddings")

    @property
    def pooled_variables(self) -> list[tf.Variable]:
        """The trainable variables that an embedding depends on.

        An average depends neither on the pooler nor on layers above the averaged ones. TF1's
        optimiser skips their variables, but a SavedModel gives them gradients of 0, so weight decay
        would change them.
        """
        if not self.pooling.layers:
            return list(self.trainable_variables)
        top = max(range(self.num_layers)[i] for i in self.pooling.layers)
        unused = "|".join(
            [
                r"\bpooler(_transform)?/",
                *(rf"\blayer_{i}/" for i in range(top + 1, self.num_layers)),
            ]
        )
        return [
            variable
            for variable in self.trainable_variables
            if not re.search(unused, variable.name)
        ]

    def read_pretrained(self, record: SourceRecord) -> Pretrained:
        """Return a BERT's present weights; raise `UserError` for another encoder."""
        bert = self.source.bert
        weights = {name: variable.numpy() for name, variable in self.variables_by_name.items()}
        return Pretrained(bert.config, bert.vocab, weights, record)

    def _table(self, name: str) -> tf.Variable | None:
        return next((v for key, v in self.variables_by_name.items() if name in key), None)
