"""Writes a BERT as a SavedModel with TF-Hub's interface of text encoders, and nothing that the interface lacks."""

import contextlib
import os
import pathlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from bert_flow_tf.encoder.convert import weights as bert_weights
from bert_flow_tf.encoder.convert.bert_config import BertConfig
from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS

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
    # tf-models takes seconds to import, and is needed only here.
    from official.legacy.bert import configs
    from official.nlp.tools import export_tfhub_lib

    fields = config.to_dict() | {"hidden_act": _ACTIVATIONS[config.hidden_act]}
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
    hub_object.dropout_state = list(states.values())
    tf.saved_model.save(hub_object, str(path), signatures={})


@contextlib.contextmanager
def _dropout_from_state_variables() -> Iterator[None]:
    """Keras layers built inside draw dropout from `tf.random.Generator` variables, which a SavedModel keeps.

    Keras' default are random operations whose state cannot be saved. The generators take their first seeds from
    Python's `random`.
    """
    enabled_before = tf_keras.backend.experimental.is_tf_random_generator_enabled()
    state = random.getstate()
    random.seed(0)
    tf_keras.backend.experimental.enable_tf_random_generator()
    try:
        yield
    finally:
        random.setstate(state)
        if not enabled_before:
            tf_keras.backend.experimental.disable_tf_random_generator()


def _assign(encoder: tf_keras.Model, config: BertConfig, weights: dict[str, np.ndarray]) -> None:
    variables = {variable.name.removesuffix(":0"): variable for variable in encoder.variables}
    for tf1_name, keras_name in bert_weights.keras_names(config.num_hidden_layers).items():
        variable = variables.pop(keras_name)
        # tf-models splits the heads into an axis of their own; the order of the numbers is the same.
        variable.assign(weights[tf1_name].reshape(variable.shape))
    if variables:
        raise ValueError(f"tf-models' encoder: found variables without a weight: {', '.join(variables)}")
