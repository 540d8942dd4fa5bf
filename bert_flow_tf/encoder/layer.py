"""A TF-Hub text encoder as a Keras layer."""

import concurrent.futures
import contextlib
import copy
import re
from collections.abc import Iterator

import tensorflow as tf
import tensorflow_hub as hub
import tf_keras
from absl import logging

from bert_flow_tf.encoder.bert import Bert, Inputs, Outputs, equal_bert, probe_inputs
from bert_flow_tf.encoder.convert.encoder_folder import floating_variables
from bert_flow_tf.encoder.convert.folders import BERT_CONFIG_FILE
from bert_flow_tf.encoder.convert.weights import BertConfig, read_tf1_config
from bert_flow_tf.encoder.pooling import pooling
from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS, TOKEN_SPECS, read_vocabulary, vocabulary_asset
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.reading import reading

# `sharing_encoders` keeps the last encoder here, as {(source, strategy): {pooling: encoder}}.
_shared: "dict[tuple, dict[str, SentenceEncoder]] | None" = None


class SentenceEncoder(tf_keras.layers.Layer):
    """Map an encoder's inputs, int32 [batch, seq], to sentence embeddings.

    It runs a `Bert` with the SavedModel's variables if the outputs are equal, else the SavedModel itself.

    Args:
      sentence_embedding_type: name of the pooling, see `pooling.pooling`.
      trainable: True to train the variables. A call with `training=True` applies dropout in either case.

    Attributes:
      dropout_seed: seed of dropout, see `call`.
      traced_embed: `embed` as a `tf.function`.
      max_seq_length, num_types: number of positions and of token types; None if unknown.
      bert_config: shape and rates of a BERT; None for another encoder.

    Raises:
      UserError: the SavedModel is not a text encoder with `encoder_outputs`, its vocabulary is larger than its
        embeddings, or the pooling is unknown.
    """

    def __init__(self, source: EncoderSource, sentence_embedding_type: str, *, trainable: bool) -> None:
        super().__init__(trainable=trainable, name="sentence_encoder")
        self.source = source
        config_file = source.encoder_dir.parent / BERT_CONFIG_FILE
        self.bert_config: BertConfig | None = read_tf1_config(config_file) if config_file.is_file() else None
        with reading(source.bert_hub, "an encoder"):
            # With a handle, KerasLayer would import Keras 3, which takes two seconds.
            self._hub_layer = hub.KerasLayer(hub.load(str(source.encoder_dir)), trainable=trainable)
        signature = self._hub_layer.resolved_object.__call__.function_spec.fullargspec
        self._takes_training = "training" in (*signature.args, *signature.kwonlyargs)
        self.dropout_seed = 0
        # A SavedModel cannot run in a strategy's scope; a new thread is outside of it.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            outputs = thread.submit(self._find_bert, trainable).result()
        self.num_layers = len(outputs["encoder_outputs"])
        self.hidden_size = outputs["sequence_output"].shape[-1]
        self._set_pooling(sentence_embedding_type)
        tables = map(self._variable, ("position_embedding/", "type_embeddings/", "word_embeddings/"))
        self.max_seq_length, self.num_types, rows = (None if table is None else table.shape[0] for table in tables)
        pieces = len(read_vocabulary(vocabulary_asset(source.preprocess_dir)))
        if rows is not None and pieces > rows:
            expected = f"expected at most {rows}, the word embeddings of {source.bert_hub}"
            raise UserError(f"{source.preprocess_dir}: found {pieces} word pieces, {expected}")

    def _find_bert(self, trainable: bool) -> Outputs:
        """Set `_bert`, None for an unknown encoder; return the SavedModel's outputs."""
        variables, name = floating_variables(self._hub_layer), self.source.bert_hub
        # Compare on the CPU, because a GPU rounds products differently.
        with tf.device("/CPU:0"):
            inputs = probe_inputs(variables)
            with reading(name, f"TF-Hub's BERT, version 3 or later, which takes {', '.join(TOKEN_INPUTS)}"):
                found = self._saved_model(inputs)
                outputs = {key: found[key] for key in ("sequence_output", "pooled_output", "encoder_outputs")}
            bert = equal_bert(variables, inputs, outputs, self.bert_config)
        self._bert = None if bert is None else Bert(variables, bert.config, trainable=trainable)
        self.bert_config = self.bert_config or (None if bert is None else bert.config)
        if bert is None:
            logging.info("%s is not a BERT of tf-models, so its SavedModel runs", name)
        return outputs

    def with_pooling(self, sentence_embedding_type: str) -> "SentenceEncoder":
        encoder = copy.copy(self)
        encoder._set_pooling(sentence_embedding_type)
        return encoder

    def in_bfloat16(self) -> "SentenceEncoder":
        """Return a copy that computes matrix products in bfloat16."""
        if self._bert is None:
            raise ArgumentError(f"dtype: found bfloat16 with {self.source.bert_hub}, expected a BERT of tf-models")
        encoder = self.with_pooling(self.sentence_embedding_type)
        encoder._bert = Bert(self._bert.variables, self._bert.config, dtype=tf.bfloat16)
        return encoder

    @tf.__internal__.tracking.no_automatic_dependency_tracking
    def _set_pooling(self, sentence_embedding_type: str) -> None:
        self.sentence_embedding_type = sentence_embedding_type
        self.pooling = pooling(sentence_embedding_type, self.num_layers)
        pooler = self._variable("pooler_transform/kernel")
        if not self.pooling.layers and pooler is not None and not tf.reduce_any(pooler != 0):
            # Conversion sets a missing pooler to zeros.
            found = f"found {sentence_embedding_type!r}, but {self.source.bert_hub} has no pooler"
            raise ArgumentError(f"pooling: {found}; use another pooling, such as paper-cls")
        self.embedding_size = self.pooling.vectors * self.hidden_size
        # All users of a shared encoder call this function, so that it is traced only once.
        self.traced_embed = tf.function(self.embed, input_signature=[TOKEN_SPECS], autograph=False)

    def call(self, inputs: Inputs, training: bool = False) -> tf.Tensor:
        """Return embeddings [batch, embedding_size].

        In training, `dropout_seed` and `inputs["occurrence"]` seed each sentence's dropout. The occurrence, int64
        [batch], is the sentence's number in a run; without it, dropout is random.
        """
        return self.pooling(self._outputs(inputs, training, self.pooling.first_token_only), inputs["input_mask"])

    def embed(self, inputs: Inputs, *, portable: bool = False) -> tf.Tensor:
        """Return embeddings without dropout; `portable` limits BERT to ONNX's operations."""
        if self._bert is None or not portable:
            return self(inputs, training=False)
        bert = Bert(self._bert.variables, self._bert.config, portable=True)
        return self.pooling(bert(inputs, first_token_only=self.pooling.first_token_only), inputs["input_mask"])

    def token_states(self, inputs: Inputs, training: bool = False) -> tf.Tensor:
        """Return the last layer's states [batch, seq, hidden_size]."""
        return self._outputs(inputs, training)["sequence_output"]

    @tf.autograph.experimental.do_not_convert
    def _outputs(self, inputs: Inputs, training: bool, first_token_only: bool = False) -> Outputs:
        tokens = {name: inputs[name] for name in TOKEN_INPUTS}
        if self._bert is None:
            return self._saved_model(tokens, training)
        if not training:
            return self._bert(tokens, first_token_only=first_token_only)
        numbers = inputs.get("occurrence")
        if numbers is None:
            numbers = tf.random.uniform(tf.shape(tokens["input_mask"])[:1], maxval=tf.int64.max, dtype=tf.int64)
        seeds = tf.stack([tf.fill(tf.shape(numbers), tf.constant(self.dropout_seed, tf.int64)), numbers], 1)
        return self._bert(tokens, seeds, training=True)

    def _saved_model(self, inputs: Inputs, training: bool = False) -> Outputs:
        # Like the original, apply dropout in a frozen encoder too; hub.KerasLayer would turn it off.
        has_dropout = training and self._takes_training
        compute = self._hub_layer.resolved_object if has_dropout else self._hub_layer
        outputs = compute(inputs, training=has_dropout)
        return tf.nest.map_structure(lambda x: tf.cast(x, tf.float32) if x.dtype.is_floating else x, outputs)

    @property
    def variables_by_name(self) -> dict[str, tf.Variable]:
        """The encoder's variables by the SavedModel's names."""
        return floating_variables(self._hub_layer) if self._bert is None else self._bert.variables

    @property
    def pooled_variables(self) -> list[tf.Variable]:
        """The trainable variables that an embedding depends on.

        An average depends neither on the pooler nor on layers above the averaged ones. TF1's optimiser skips their
        variables, but a SavedModel gives them gradients of 0, so weight decay would change them.
        """
        if not self.pooling.layers:
            return list(self.trainable_variables)
        top = max(range(self.num_layers)[i] for i in self.pooling.layers)
        unused = "|".join(["pooler_transform/", *(rf"\blayer_{i}/" for i in range(top + 1, self.num_layers))])
        return [variable for variable in self.trainable_variables if not re.search(unused, variable.name)]

    @property
    def has_seeded_dropout(self) -> bool:
        """True if `occurrence` seeds dropout; a SavedModel's dropout is random."""
        return self._bert is not None

    def _variable(self, name: str) -> tf.Variable | None:
        return next((v for v in self._hub_layer.variables if name in v.name), None)


@contextlib.contextmanager
def sharing_encoders() -> Iterator[None]:
    """Let `frozen_encoder` reuse the last encoder within this block."""
    global _shared
    _shared = {}
    try:
        yield
    finally:
        _shared = None


def frozen_encoder(source: EncoderSource, sentence_embedding_type: str) -> SentenceEncoder:
    """Return an encoder that may be shared; do not change its variables."""
    if _shared is None:
        return SentenceEncoder(source, sentence_embedding_type, trainable=False)
    # Variables belong to the strategy in which they were created.
    key = source, tf.distribute.get_strategy()
    if key not in _shared:
        # Drop the old encoder first, because two large ones may not fit into memory.
        _shared.clear()
        _shared[key] = {sentence_embedding_type: SentenceEncoder(source, sentence_embedding_type, trainable=False)}
    encoders = _shared[key]
    if sentence_embedding_type not in encoders:
        encoders[sentence_embedding_type] = next(iter(encoders.values())).with_pooling(sentence_embedding_type)
    return encoders[sentence_embedding_type]
