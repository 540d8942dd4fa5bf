"""An encoder's two SavedModels as TF-Hub publishes them: BERT, and the preprocess model with the exact tokenizer.

tf-models takes seconds to import: import this module where a model is written.
"""

import contextlib
import os
import pathlib
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf
import tf_keras
from official.legacy.bert import configs
from official.nlp.modeling import layers
from official.nlp.tools import export_tfhub_lib
from tf_keras.src import backend as keras_backend

from bert_flow_tf.encoder.convert.bert_config import BertConfig
from bert_flow_tf.encoder.convert.weights import keras_names
from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS, Tokenizer
from bert_flow_tf.encoder.vocabulary import read_vocabulary

_SEQ_LENGTH = 128  # as TF-Hub's own preprocess models
_SENTENCES = tf.TensorSpec([None], tf.string, name="sentences")
_ACTIVATIONS = {
    "gelu_tanh": "gelu",  # tf-models' own name for it
    "gelu_erf": tf_keras.activations.gelu,
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}


def save_bert(
    path: pathlib.Path,
    config: BertConfig,
    weights: dict[str, np.ndarray],
    *,
    vocab_file: str | os.PathLike,
    do_lower_case: bool,
) -> None:
    """Writes the SavedModel: called with a dict of int32 [batch, seq], it gives a dict of outputs as TF-Hub's BERTs do.

    `sequence_output` is [batch, seq, width], `encoder_outputs` a list of such, one per layer, `pooled_output` and
    `default` are [batch, width]. It holds one function for training and one without dropout. tf-models'
    `export_tfhub_lib`, whose encoder this is, would keep those of every Keras layer, 81 for a BERT of six, which take
    seconds to load.

    `weights` are by TF1 name; the vocabulary becomes an asset.
    """
    fields = msgspec.structs.asdict(config) | {"hidden_act": _ACTIVATIONS[config.hidden_act]}
    with _dropout_from_state_variables():
        encoder = export_tfhub_lib.get_bert_encoder(configs.BertConfig(**fields))
    _assign(encoder, config, weights)

    @tf.function
    def call(inputs: dict[str, tf.Tensor], training: bool = False) -> dict[str, Any]:
        outputs = encoder(inputs, training=training)
        return {**outputs, "default": outputs["pooled_output"]}

    specs = {name: tf.TensorSpec([None, None], tf.int32, name) for name in TOKEN_INPUTS}
    traces = [call.get_concrete_function(specs, training=training) for training in (False, True)]
    hub_object = tf.train.Checkpoint(vocab_file=tf.saved_model.Asset(str(vocab_file)))
    hub_object.__call__ = call
    hub_object.variables = encoder.variables
    hub_object.trainable_variables = encoder.trainable_variables
    hub_object.regularization_losses = []
    hub_object.do_lower_case = tf.Variable(do_lower_case, trainable=False)
    states = {id(v): v for trace in traces for v in trace.graph.variables if v.dtype == tf.int64}
    # In an order of their own: that of a function's variables is another one in every process.
    hub_object.dropout_state = sorted(states.values(), key=lambda state: state.numpy().tolist())
    tf.saved_model.save(hub_object, str(path), signatures={})


@contextlib.contextmanager
def _dropout_from_state_variables() -> Iterator[None]:
    """Keras layers built inside draw dropout from `tf.random.Generator` variables, which a SavedModel keeps.

    Keras' default are random operations whose state cannot be saved. The generators take their first seeds from one of
    Keras, which is set here, whatever seed the process has.
    """
    enabled_before = tf_keras.backend.experimental.is_tf_random_generator_enabled()
    seeds = getattr(keras_backend._SEED_GENERATOR, "generator", None)
    keras_backend._SEED_GENERATOR.generator = random.Random(0)
    tf_keras.backend.experimental.enable_tf_random_generator()
    try:
        yield
    finally:
        keras_backend._SEED_GENERATOR.generator = seeds
        if not enabled_before:
            tf_keras.backend.experimental.disable_tf_random_generator()


def _assign(encoder: tf_keras.Model, config: BertConfig, weights: dict[str, np.ndarray]) -> None:
    variables = {variable.name.removesuffix(":0"): variable for variable in encoder.variables}
    for tf1_name, keras_name in keras_names(config.num_hidden_layers).items():
        variable = variables.pop(keras_name)
        # tf-models splits the heads into an axis of their own; the order of the numbers is the same.
        variable.assign(weights[tf1_name].reshape(variable.shape))
    if variables:
        raise ValueError(f"tf-models' encoder: found variables without a weight: {', '.join(variables)}")


class Preprocess(tf.Module):
    """Preprocess model: sentences, a string tensor [n], to the dict of int32 [n, 128] that a text encoder takes.

    It has the parts of TF-Hub's preprocess models: `tokenize` (string [n] -> ragged int32 [n, (words), (pieces)]),
    `tokenize.get_special_tokens_dict()` and `bert_pack_inputs(list of one or two such tensors, seq_length)`.
    The vocabulary becomes an asset of the SavedModel.
    """

    def __init__(self, vocab_file: str | os.PathLike, do_lower_case: bool) -> None:
        super().__init__(name="preprocess")
        self._tokenizer = tokenizer = Tokenizer(read_vocabulary(vocab_file), do_lower_case)
        special_tokens = {
            "start_of_sequence_id": tokenizer.cls_id,
            "end_of_segment_id": tokenizer.sep_id,
            "padding_id": tokenizer.pad_id,
            "mask_id": tokenizer.mask_id,
            "vocab_size": tokenizer.vocab_size,
        }
        self.vocab_file = tf.saved_model.Asset(str(vocab_file))
        self.do_lower_case = tf.Variable(do_lower_case, trainable=False)
        constants = tf.function(
            lambda: {name: tf.constant(i) for name, i in special_tokens.items()}, input_signature=[]
        )
        self.tokenize = tf.train.Checkpoint(get_special_tokens_dict=constants)
        self.tokenize.__call__ = tf.function(tokenizer.tokenize_words, input_signature=[_SENTENCES])
        self.bert_pack_inputs = export_tfhub_lib.BertPackInputsSavedModelWrapper(
            layers.BertPackInputs(seq_length=_SEQ_LENGTH, special_tokens_dict=special_tokens)
        )

    @tf.function(input_signature=[_SENTENCES])
    def __call__(self, sentences: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._tokenizer(sentences, _SEQ_LENGTH, pad_to_max=True)
