"""A TF-Hub BERT as a layer that gives one vector per sentence."""

import concurrent.futures
import copy
import hashlib
import re
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_hub as hub
import tf_keras
from absl import logging

from bert_flow_tf.encoder.arithmetic import multiplies_bfloat16
from bert_flow_tf.encoder.bfloat16 import RoundedEncoder
from bert_flow_tf.encoder.convert.bert_config import BertConfig, read_tf1_config
from bert_flow_tf.encoder.convert.encoder_folder import floating_variables, refusing_damaged_model
from bert_flow_tf.encoder.convert.folders import BERT_CONFIG_FILE
from bert_flow_tf.encoder.dropout import dropout_rates
from bert_flow_tf.encoder.fused_bert import FusedBert, PlainBert, fused_bert
from bert_flow_tf.encoder.pooling import pooling
from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS, TOKEN_SPECS, read_vocabulary, vocabulary_asset
from bert_flow_tf.encoder.trainable_bert import TrainableBert, has_gradients_of, proved_before
from bert_flow_tf.errors import ArgumentError, UserError


class SentenceEncoder(tf_keras.layers.Layer):
    """Layer from a text encoder's inputs, a dict of int32 [batch, seq], to sentence embeddings [batch, embedding_size].

    Args:
      sentence_embedding_type: name of the pooling, see `pooling.pooling`.
      trainable: whether the encoder's variables are trained. Frozen or not, `training=True` turns its dropout on, as
        in the original.

    Attributes:
      embedding_size, hidden_size: length of an embedding, and width of the encoder.
      traced_embed: `embed` as a `tf.function`.
      max_seq_length, num_types, vocab_size: positions, token types and rows of word embeddings that the encoder has;
        None where no variable shows it.

    Raises:
      UserError: the SavedModel is not a text encoder with `encoder_outputs`, its vocabulary is larger than its
        embeddings, or the pooling does not exist.
    """

    def __init__(self, source: EncoderSource, sentence_embedding_type: str, *, trainable: bool) -> None:
        super().__init__(trainable=trainable, name="sentence_encoder")
        self.source = source
        with refusing_damaged_model(source.bert_hub, "an encoder"):
            # Loaded here: to load it, KerasLayer would import Keras 3, which takes two seconds, and not use it.
            self._hub_layer = hub.KerasLayer(hub.load(str(source.encoder_dir)), trainable=trainable)
        outputs = self._probe()
        self.num_layers = len(outputs["encoder_outputs"])
        self.hidden_size = outputs["sequence_output"].shape[-1]
        self._set_pooling(sentence_embedding_type)
        self.max_seq_length = self._rows("position_embedding")
        self.num_types = self._rows("type_embeddings")
        self.vocab_size = self._rows("word_embeddings")
        pieces = len(read_vocabulary(vocabulary_asset(source.preprocess_dir)))
        if self.vocab_size is not None and pieces > self.vocab_size:
            raise UserError(
                f"{source.preprocess_dir}: {pieces} word pieces, the encoder {source.bert_hub} has "
                f"{self.vocab_size} word embeddings"
            )
        function = self._hub_layer.resolved_object.__call__
        signature = function.function_spec.fullargspec
        self._takes_training = "training" in (*signature.args, *signature.kwonlyargs)
        # States of `tf.random.Generator` that the encoder's functions use, in the order of use.
        states = {id(v): v for trace in function.concrete_functions for v in trace.variables if v.dtype == tf.int64}
        self._dropout_variables = [variable for variable in states.values() if "StateVar" in variable.name]
        self._dropout_seed = 0
        self._fused: FusedBert | None = None
        self._looked_for_fused = False
        self._trainable_bert: TrainableBert | None = None
        self._looked_for_trainable = False

    def with_pooling(self, sentence_embedding_type: str) -> "SentenceEncoder":
        """The encoder with another pooling, on the same variables; raises `ArgumentError` if there is no such one."""
        encoder = copy.copy(self)
        encoder._set_pooling(sentence_embedding_type)
        return encoder

    @tf.__internal__.tracking.no_automatic_dependency_tracking
    def _set_pooling(self, sentence_embedding_type: str) -> None:
        self.sentence_embedding_type = sentence_embedding_type
        self.pooling = pooling(sentence_embedding_type, self.num_layers)
        pooler = next((v for v in self._hub_layer.variables if "pooler_transform/kernel" in v.name), None)
        if not self.pooling.layers and pooler is not None and not tf.reduce_any(pooler != 0):
            # As a model that was saved without one is converted.
            raise ArgumentError(
                f"pooling: found {sentence_embedding_type!r}, but {self.source.bert_hub} has no pooler; expected "
                "another one, such as paper-cls"
            )
        self.embedding_size = self.pooling.vectors * self.hidden_size
        # Traced once, for all copies.
        self.traced_embed = tf.function(self.embed, input_signature=[TOKEN_SPECS], autograph=False)

    def call(self, inputs: dict[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        """Embeddings [batch, embedding_size] of the dict of inputs.

        Three ways lead to BERT's outputs: without dropout through the fused forward pass where there is one; with
        dropout through the fused one in training where there is one and `inputs` number their sentences; else
        through the SavedModel.

        With dropout, `occurrence`, int64 [batch], is the number of each sentence among all that a run sees: seed and
        number decide what is dropped, not the batch, nor the replica.
        """
        if training:
            return self.pooling(self._with_dropout(inputs), inputs["input_mask"])
        inputs = {name: inputs[name] for name in TOKEN_INPUTS}
        return self.pooling(self._without_dropout(inputs, self.pooling.first_token_only), inputs["input_mask"])

    def embed(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Embeddings [batch, embedding_size] of the dict of inputs, dropout off."""
        return self(inputs, training=False)

    def embed_plainly(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """`embed` in operations that other formats have, too, for what converts a graph to them."""
        fused = self._find_fused()
        if fused is None:
            return self.pooling(self._saved_model(inputs), inputs["input_mask"])
        plain = PlainBert(self.variables_by_name, approximate_gelu=fused.approximate_gelu)
        outputs = plain(inputs, last_layer_first_token_only=self.pooling.first_token_only)
        return self.pooling(outputs, inputs["input_mask"])

    def embed_in_training(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Embeddings [batch, embedding_size] of the dict of inputs, dropout on."""
        return self(inputs, training=True)

    def token_states(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """The last layer's states [batch, seq, hidden_size] of the dict of inputs, dropout off: before any pooling."""
        return self._without_dropout(inputs)["sequence_output"]

    def token_states_in_training(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """`token_states` with dropout; `inputs` may number their sentences, see `call`."""
        return self._with_dropout(inputs)["sequence_output"]

    def _with_dropout(self, inputs: dict[str, tf.Tensor]) -> dict[str, Any]:
        occurrence = inputs.get("occurrence")
        inputs = {name: inputs[name] for name in TOKEN_INPUTS}
        trainable = None if occurrence is None else self._find_trainable()
        if trainable is not None:
            seeds = tf.stack([tf.fill(tf.shape(occurrence), tf.constant(self._dropout_seed, tf.int64)), occurrence], 1)
            return trainable.with_dropout(inputs, seeds)
        return self._saved_model(inputs, training=True)

    @tf.autograph.experimental.do_not_convert
    def _without_dropout(self, inputs: dict[str, tf.Tensor], first_token_only: bool = False) -> dict[str, Any]:
        """The outputs of the SavedModel, or of what computes the same faster, where it is a BERT's."""
        fused = self._find_fused()
        if fused is None:
            return self._saved_model(inputs)
        return fused(inputs, last_layer_first_token_only=first_token_only)

    @tf.__internal__.tracking.no_automatic_dependency_tracking
    def _find_fused(self) -> FusedBert | None:
        """`FusedBert` of this encoder; None where its SavedModel computes something else."""
        if not self._looked_for_fused:
            self._fused = _outside_of_strategies(lambda: fused_bert(self._saved_model, self.variables_by_name))
            if self._fused is None:
                logging.info("%s is run as its SavedModel has it: it is not a BERT of tf-models", self.source.bert_hub)
            self._looked_for_fused = True
        return self._fused

    @tf.__internal__.tracking.no_automatic_dependency_tracking
    def _find_trainable(self) -> TrainableBert | None:
        """`TrainableBert` of this encoder; None where its SavedModel's gradients or dropout are others."""
        if not self._looked_for_trainable:
            self._trainable_bert = self._proved_trainable()
            if self._trainable_bert is None:
                logging.info("%s is trained as its SavedModel has it", self.source.bert_hub)
            self._looked_for_trainable = True
        return self._trainable_bert

    def _proved_trainable(self) -> TrainableBert | None:
        fused = self._find_fused()
        rates = dropout_rates(self._hub_layer.resolved_object.__call__, self.num_layers) if fused else None
        if fused is None or rates is None:
            return None
        options: Any = {"approximate_gelu": fused.approximate_gelu, "rates": rates}
        one_replica = {name: _replicas(variable)[0] for name, variable in self.variables_by_name.items()}

        def prove() -> bool:
            return has_gradients_of(self._saved_model, TrainableBert(one_replica, **options), one_replica)

        graph = self.source.encoder_dir / "saved_model.pb"
        is_proved = proved_before(graph, lambda: _outside_of_strategies(prove))
        return TrainableBert(self.variables_by_name, **options, frozen=not self.trainable) if is_proved else None

    def _saved_model(self, inputs: dict[str, tf.Tensor], training: bool = False) -> dict[str, Any]:
        """The SavedModel's outputs, in float32 where they are of half precision."""
        # hub.KerasLayer turns dropout off in a frozen layer; the original leaves it on.
        drops_when_frozen = training and not self.trainable and self._takes_training
        compute = self._hub_layer.resolved_object if drops_when_frozen else self._hub_layer
        outputs = compute(inputs, training=training)
        return tf.nest.map_structure(lambda x: tf.cast(x, tf.float32) if x.dtype.is_floating else x, outputs)

    def rounded_to_bfloat16(self, multiply_in_bfloat16: bool | None = None) -> RoundedEncoder:
        """`RoundedEncoder` of the encoder's weights as they are now; None takes the arithmetic that is faster here.

        Raises:
          UserError: it is not a BERT of tf-models.
        """
        fused = self._find_fused()
        if fused is None:
            raise ArgumentError(
                f"dtype: found bfloat16 with {self.source.bert_hub}, expected it with a BERT of tf-models-official"
            )
        variables = self.variables_by_name
        if multiply_in_bfloat16 is None:
            multiply_in_bfloat16 = _outside_of_strategies(lambda: multiplies_bfloat16(variables))
        return RoundedEncoder(fused, self.pooling, variables, self.embedding_size, multiply_in_bfloat16)

    @property
    def bert_config(self) -> BertConfig | None:
        """The `BertConfig` of the encoder; None where it is not a BERT of tf-models."""
        path = self.source.encoder_dir.parent / BERT_CONFIG_FILE
        if path.is_file():
            return read_tf1_config(path)
        fused = self._find_fused()
        return None if fused is None else fused.config

    @property
    def variables_by_name(self) -> dict[str, tf.Variable]:
        """dict of name -> variable of the encoder, for `tf.train.Checkpoint`; the names are those of the SavedModel."""
        return floating_variables(self._hub_layer)

    @property
    def word_embeddings(self) -> tf.Variable | None:
        """The variable of word embeddings [vocab_size, hidden_size]; None where no name shows it."""
        return next((v for v in self._hub_layer.variables if "word_embeddings/embeddings" in v.name), None)

    @property
    def pooled_variables(self) -> list[tf.Variable]:
        """The trainable variables that an embedding depends on.

        Without the pooler under an average, and without the layers above the last one that is averaged. TF1 has no
        gradient for those, so its optimiser leaves them alone; through a SavedModel their gradient is zero, and they
        would decay. They are recognised by the names that TF-Hub's BERTs give them.
        """
        if not self.pooling.layers:
            return list(self.trainable_variables)
        top = max(range(self.num_layers)[i] for i in self.pooling.layers)

        def is_read(name: str) -> bool:
            layer = re.search(r"(?:^|/)layer_(\d+)/", name)
            return "pooler_transform/" not in name and (layer is None or int(layer[1]) <= top)

        return [variable for variable in self.trainable_variables if is_read(variable.name)]

    @property
    def dropout_state(self) -> list[tf.Variable]:
        """The variables that drive the SavedModel's dropout, one per layer and replica; empty where it exposes none.

        Empty too where `TrainableBert` takes its place, whose dropout needs no state. A run whose checkpoints hold them
        ends in the same bits when it is interrupted.
        """
        if self.numbers_occurrences:
            return []
        return [component for variable in self._dropout_variables for component in _replicas(variable)]

    @property
    def numbers_occurrences(self) -> bool:
        """Whether dropout goes by the seed and the number of each sentence alone."""
        return self._find_trainable() is not None

    def seed_dropout(self, seed: int, first_replica: int = 0, step: int = 0) -> None:
        """Resets dropout to the int `seed`: the same seed gives the same masks, and each replica different ones.

        `first_replica` is the number of this process's first one; each `step` from which a run goes on has others.
        """
        self._dropout_seed = seed
        for layer, variable in enumerate(self._dropout_variables):
            for replica, component in enumerate(_replicas(variable)):
                drawn = f"dropout {seed} {layer} {first_replica + replica}" + (f" {step}" if step else "")
                key = hashlib.sha256(drawn.encode()).digest()[:8]
                # The state of the Philox generator: a counter of two words, then the key.
                component.assign([0, 0, int.from_bytes(key, "little", signed=True)])

    def _probe(self) -> dict[str, Any]:
        """The encoder's outputs by name, as symbols: traced, not run, since a strategy's scope cannot run it."""
        trace = tf.function(lambda inputs: self._hub_layer(inputs, training=False), autograph=False)
        try:
            outputs = trace.get_concrete_function(TOKEN_SPECS).structured_outputs
        except (TypeError, ValueError) as error:
            raise UserError(
                f"{self.source.bert_hub}: not a text encoder, expected one that takes a dict of "
                f"{', '.join(TOKEN_INPUTS)}"
            ) from error
        for key in ("sequence_output", "pooled_output", "encoder_outputs"):
            if not isinstance(outputs, dict) or key not in outputs:
                raise UserError(
                    f"{self.source.bert_hub}: the encoder gives no {key}, expected a TF-Hub BERT of version 3 or later"
                )
        return outputs

    def _rows(self, name: str) -> int | None:
        return next((v.shape[0] for v in self._hub_layer.variables if f"{name}/embeddings" in v.name), None)


def _outside_of_strategies(function: Callable[[], Any]) -> Any:
    """What `function` gives on a CPU, eagerly: a GPU may round its factors, and a strategy runs no SavedModel."""

    def on_cpu() -> Any:
        with tf.device("/CPU:0"):
            return function()

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(on_cpu).result()


def _replicas(variable: tf.Variable) -> list[tf.Variable]:
    """The variable's copy on each replica; itself alone outside a strategy."""
    if isinstance(variable, tf.distribute.DistributedValues):
        return list(variable.values)
    return [variable]
