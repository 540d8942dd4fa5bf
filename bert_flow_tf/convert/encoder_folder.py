"""Writes an encoder folder: `encoder/`, `preprocess/`, `bert_config.json`, `vocab.txt` and `source.json`."""

import contextlib
import json
import logging
import pathlib
import random
import shutil
import tempfile

import tensorflow as tf
import tf_keras

from bert_flow_tf import atomic
from bert_flow_tf.convert import weights as bert_weights
from bert_flow_tf.errors import UserError
from bert_flow_tf.tokenizer import read_vocabulary

# Part of every cache key: raise it when the same source would give another folder.
FORMAT_VERSION = 1
_ACTIVATIONS = {
    "gelu_tanh": "gelu",  # tf-models' own name for it
    "gelu_erf": tf_keras.activations.gelu,
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}


def write_encoder_folder(out_dir, *, config, vocab_file, weights, do_lower_case, source, overwrite=False):
    """Path of the encoder folder written.

    Args:
      out_dir: the folder to make.
      config: `BertConfig`.
      vocab_file: path of the vocabulary.
      weights: dict of TF1 name -> array, checked by `check_variables`.
      do_lower_case: whether the vocabulary is uncased; None decides by whether it has pieces with capitals.
      source: dict that says where the weights came from, for `source.json`; no paths and no times, so that one source
        gives one folder.
      overwrite: whether an encoder folder of that name may be replaced.

    Raises:
      UserError: the vocabulary has another size than the configuration says, a weight is not finite, or `out_dir`
      exists.
    """
    vocab = read_vocabulary(vocab_file)
    if len(vocab) != config.vocab_size:
        raise UserError(
            f"{vocab_file}: {len(vocab)} word pieces, the configuration's vocab_size is {config.vocab_size}"
        )
    bert_weights.check_finite(weights, source["kind"])
    if do_lower_case is None:
        do_lower_case = not has_capitals(vocab)
    # tf-models takes seconds to import, and only here is it needed.
    from bert_flow_tf.convert.preprocess import Preprocess

    with new_encoder_folder(out_dir, overwrite=overwrite) as folder:
        shutil.copyfile(vocab_file, folder / "vocab.txt")
        write_json(folder / "bert_config.json", config.to_dict())
        write_json(folder / "source.json", {"format_version": FORMAT_VERSION, "do_lower_case": do_lower_case, **source})
        with quiet_tensorflow():
            _save_encoder(folder / "encoder", config, weights, folder / "vocab.txt", do_lower_case)
            tf.saved_model.save(Preprocess(folder / "vocab.txt", do_lower_case), str(folder / "preprocess"))
    return pathlib.Path(out_dir)


def has_capitals(vocab):
    """Whether a vocabulary has pieces with capitals, special tokens in brackets aside: then it is a cased one."""
    return any(piece != piece.lower() for piece in vocab if not (piece.startswith("[") and piece.endswith("]")))


def write_json(path, value):
    """Writes `value` to the file `path` as indented JSON with sorted keys."""
    pathlib.Path(path).write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@contextlib.contextmanager
def new_encoder_folder(out_dir, *, overwrite=False):
    """Gives a temporary sibling of `out_dir`, which takes its name when the block ends well and is removed when not.

    Raises:
      UserError: `out_dir` exists and `overwrite` is false, or it is no encoder folder, or its parent cannot be written.
    """
    out_dir = pathlib.Path(out_dir).absolute()
    if out_dir.exists():
        if not overwrite:
            raise UserError(f"{out_dir}: exists, expected a new folder or --overwrite")
        if not (out_dir / "source.json").is_file():
            raise UserError(f"{out_dir}: exists and has no source.json, so it is no encoder folder to overwrite")
    with atomic.new_folder(out_dir) as folder:
        folder.mkdir()
        yield folder


@contextlib.contextmanager
def quiet_tensorflow():
    """Keeps TensorFlow's remarks about untraced functions, which concern no user of a converter, off the terminal."""
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    absl_level = logging.getLogger("absl").level
    logging.getLogger("absl").setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        logging.getLogger("absl").setLevel(absl_level)


@contextlib.contextmanager
def _dropout_from_state_variables():
    """Keras layers built inside draw dropout from `tf.random.Generator` variables, which a SavedModel keeps.

    Keras' default are random ops whose state nobody can save. The generators' first seeds come from Python's `random`.
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


def _save_encoder(path, config, weights, vocab_file, do_lower_case):
    from official.legacy.bert import configs
    from official.nlp.tools import export_tfhub_lib

    fields = config.to_dict() | {"hidden_act": _ACTIVATIONS[config.hidden_act]}
    bert_config = configs.BertConfig(**fields)
    with _dropout_from_state_variables(), tempfile.TemporaryDirectory() as workspace:
        encoder = export_tfhub_lib.get_bert_encoder(bert_config)
        _assign(encoder, config, weights)
        checkpoint = tf.train.Checkpoint(model=encoder, encoder=encoder).save(f"{workspace}/encoder")
        export_tfhub_lib.export_model(
            str(path),
            bert_config=bert_config,
            model_checkpoint_path=checkpoint,
            with_mlm=False,
            vocab_file=str(vocab_file),
            do_lower_case=do_lower_case,
        )


def _assign(encoder, config, weights):
    variables = {variable.name.removesuffix(":0"): variable for variable in encoder.variables}
    for tf1_name, keras_name in bert_weights.keras_names(config.num_hidden_layers).items():
        variable = variables.pop(keras_name)
        # tf-models splits the heads into an axis of their own; the order of the numbers is the same.
        variable.assign(weights[tf1_name].reshape(variable.shape))
    if variables:
        raise ValueError(f"tf-models' encoder has variables that no weight was assigned to: {', '.join(variables)}")
