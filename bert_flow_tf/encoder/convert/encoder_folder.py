"""Write an encoder folder: `encoder/`, `preprocess/`, `bert_config.json`, `vocab.txt` and `source.json`.

`encoder/` and `preprocess/` are SavedModels as TF-Hub publishes them.
"""

import contextlib
import logging
import os
import pathlib
import random
import shutil
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
import tf_keras
from tf_keras.src import backend as keras_backend

from bert_flow_tf.encoder.convert.bert_config import BertConfig
from bert_flow_tf.encoder.convert.folders import BERT_CONFIG_FILE, ENCODER_FOLDER, SOURCE_FILE, VOCAB_FILE
from bert_flow_tf.encoder.convert.weights import check_arrays, check_finite_arrays, keras_names
from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS, Tokenizer, has_capitals, vocabulary_asset
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import new_output
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.files.json_files import FORMAT_VERSION, write_json

if TYPE_CHECKING:
    from bert_flow_tf.encoder.handles import EncoderSource

_SEQ_LENGTH = 128  # as TF-Hub's own preprocess models
_SENTENCES = tf.TensorSpec([None], tf.string, name="sentences")


def write_encoder_folder(
    out_dir: str | os.PathLike,
    *,
    config: BertConfig,
    vocab: list[str],
    weights: dict[str, np.ndarray],
    do_lower_case: bool | None,
    source: dict[str, Any],
    overwrite: bool = False,
) -> pathlib.Path:
    """Write an encoder folder and return its path.

    Args:
      weights: dict of TF1 name -> array, checked by `check_shapes`.
      do_lower_case: True if the vocabulary is uncased; None decides by its capitals.
      source: origin of the weights, for `source.json`, without paths and times, so that one source gives one folder.

    Raises:
      UserError: the vocabulary does not fit the configuration, a weight is not finite, or `out_dir` may not be written.
    """
    if len(vocab) != config.vocab_size:
        raise UserError(f"vocab_size: found {config.vocab_size}, expected the {len(vocab)} pieces of the vocabulary")
    check_finite_arrays(weights, source["kind"])
    if do_lower_case is None:
        do_lower_case = not has_capitals(vocab)
    with new_output(out_dir, ENCODER_FOLDER, overwrite=overwrite) as folder:
        (folder / VOCAB_FILE).write_text("".join(f"{piece}\n" for piece in vocab), encoding="utf-8")
        write_json(folder / BERT_CONFIG_FILE, dict(sorted(msgspec.structs.asdict(config).items())))
        asset = tf.saved_model.Asset(str(folder / VOCAB_FILE))
        with quiet_tensorflow():
            encoder = _bert(config, weights, asset, do_lower_case)
            tf.saved_model.save(encoder, str(folder / "encoder"), signatures={})
            preprocess = Preprocess(Tokenizer(vocab, do_lower_case), asset)
            tf.saved_model.save(preprocess, str(folder / "preprocess"))
        write_encoder_record(folder, {"do_lower_case": do_lower_case, **source})
    return pathlib.Path(out_dir)


def write_with_weights(
    folder: pathlib.Path, source: "EncoderSource", variables: Mapping[str, np.ndarray], origin: dict[str, Any]
) -> None:
    """Fill an encoder folder with the encoder of `source`, the same graph, with other weights.

    Args:
      variables: dict of name -> array of all variables, named as in `SentenceEncoder.variables_by_name`.
      origin: origin of the weights, for `source.json`.

    Raises:
      UserError: a variable is missing, unexpected, of another shape or not finite.
    """
    with refusing_damaged_model(source.bert_hub, "an encoder"):
        encoder = hub.load(str(source.encoder_dir))
        held = floating_variables(encoder)
    check_arrays(variables, held, source.bert_hub, "this encoder")
    for name, variable in held.items():
        variable.assign(variables[name])
    with quiet_tensorflow():
        tf.saved_model.save(encoder, str(folder / "encoder"))
    copy_beside_encoder(source, folder)
    record = {"do_lower_case": source.do_lower_case, "started_from": source.fingerprint}
    write_encoder_record(folder, record | origin)


def copy_beside_encoder(source: "EncoderSource", folder: pathlib.Path) -> None:
    """Copy the vocabulary and the configuration into an encoder folder."""
    shutil.copytree(source.preprocess_dir, folder / "preprocess", copy_function=shutil.copyfile)
    shutil.copyfile(vocabulary_asset(source.preprocess_dir), folder / VOCAB_FILE)
    config = source.encoder_dir.parent / BERT_CONFIG_FILE
    if config.is_file():
        shutil.copyfile(config, folder / BERT_CONFIG_FILE)


def write_encoder_record(folder: pathlib.Path, record: dict[str, Any]) -> None:
    """Write `source.json` with the digests of the other files: a `folders.EncoderRecord` and the weights' origin."""
    # TensorFlow checks the variables itself; its fingerprint.pb is not read.
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    signed = [name for name in names if not name.endswith(("fingerprint.pb", SOURCE_FILE)) and ".data-" not in name]
    digests = {name: file_digest(folder / name) for name in signed}
    write_json(folder / SOURCE_FILE, {"format_version": FORMAT_VERSION} | record | {"digests": digests})


def floating_variables(encoder: Any) -> dict[str, tf.Variable]:
    """Return a dict of name -> variable of a loaded encoder, without the states of dropout."""
    return {v.name.removesuffix(":0"): v for v in encoder.variables if v.dtype.is_floating}


@contextlib.contextmanager
def refusing_damaged_model(name: str | os.PathLike, kind: str) -> Iterator[None]:
    """Turn TensorFlow's exceptions for a damaged or unsuitable SavedModel into a `UserError`."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, tf.errors.OpError) as error:
        raise UserError(f"{name}: cannot be loaded as {kind}: {' '.join(str(error).split())}") from error


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Silence TensorFlow's warnings about untraced functions, which do not help a user."""
    loggers = tf.get_logger(), logging.getLogger("absl")
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _bert(config: BertConfig, weights: dict[str, np.ndarray], asset: Any, do_lower_case: bool) -> tf.train.Checkpoint:
    """Return what TF-Hub's BERTs are: a function from a dict of int32 [batch, seq] to a dict of outputs.

    `sequence_output` is [batch, seq, width], `encoder_outputs` a list of such, one per layer, `pooled_output` and
    `default` are [batch, width]. tf-models' own `export_tfhub_lib` would keep a function of every Keras layer, 81 for a
    BERT of six layers, which take seconds to load.
    """
    # tf-models takes seconds to import, and only a conversion needs it.
    from official.legacy.bert import configs
    from official.nlp.tools import export_tfhub_lib

    # tf-models calls the tanh approximation gelu.
    activation = {"gelu_tanh": "gelu", "gelu_erf": tf_keras.activations.gelu}.get(config.hidden_act, config.hidden_act)
    fields = msgspec.structs.asdict(config) | {"hidden_act": activation}
    with _dropout_from_state_variables():
        encoder = export_tfhub_lib.get_bert_encoder(configs.BertConfig(**fields))
    variables = {variable.name.removesuffix(":0"): variable for variable in encoder.variables}
    for tf1_name, keras_name in keras_names(config.num_hidden_layers).items():
        # tf-models has an axis of heads; the order of the numbers is the same.
        variables[keras_name].assign(weights[tf1_name].reshape(variables[keras_name].shape))

    @tf.function
    def call(inputs: dict[str, tf.Tensor], training: bool = False) -> dict[str, Any]:
        outputs = encoder(inputs, training=training)
        return {**outputs, "default": outputs["pooled_output"]}

    specs = {name: tf.TensorSpec([None, None], tf.int32, name) for name in TOKEN_INPUTS}
    traces = [call.get_concrete_function(specs, training=training) for training in (False, True)]
    hub_object = tf.train.Checkpoint(vocab_file=asset)
    hub_object.__call__ = call
    hub_object.variables = encoder.variables
    hub_object.trainable_variables = encoder.trainable_variables
    hub_object.regularization_losses = []
    hub_object.do_lower_case = tf.Variable(do_lower_case, trainable=False)
    states = {id(v): v for trace in traces for v in trace.graph.variables if v.dtype == tf.int64}
    # The order of a function's variables differs from process to process.
    hub_object.dropout_state = sorted(states.values(), key=lambda state: state.numpy().tolist())
    return hub_object


@contextlib.contextmanager
def _dropout_from_state_variables() -> Iterator[None]:
    """Make Keras layers draw dropout from `tf.random.Generator` variables, which a SavedModel keeps.

    The generators take their first seeds from one of Keras, which is set here, independent of the process's seed.
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


class Preprocess(tf.Module):
    """Preprocess model: sentences, a string tensor [n], to the dict of int32 [n, 128] that a text encoder takes.

    It has the parts of TF-Hub's preprocess models: `tokenize` (string [n] -> ragged int32 [n, (words), (pieces)]),
    `tokenize.get_special_tokens_dict()` and `bert_pack_inputs(list of one or two such tensors, seq_length)`.
    `asset` is the vocabulary's file.
    """

    def __init__(self, tokenizer: Tokenizer, asset: Any) -> None:
        from official.nlp.modeling import layers
        from official.nlp.tools import export_tfhub_lib

        super().__init__(name="preprocess")
        self._tokenizer = tokenizer
        special_tokens = {
            "start_of_sequence_id": tokenizer.cls_id,
            "end_of_segment_id": tokenizer.sep_id,
            "padding_id": tokenizer.pad_id,
            "mask_id": tokenizer.mask_id,
            "vocab_size": tokenizer.vocab_size,
        }
        self.vocab_file = asset
        self.do_lower_case = tf.Variable(tokenizer.do_lower_case, trainable=False)
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
