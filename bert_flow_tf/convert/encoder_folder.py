"""Writes an encoder folder: `encoder/`, `preprocess/`, `bert_config.json`, `vocab.txt` and `source.json`."""

import contextlib
import json
import logging
import pathlib
import shutil

import tensorflow as tf

from bert_flow_tf import atomic
from bert_flow_tf.convert import weights as bert_weights
from bert_flow_tf.convert.bert_saved_model import save_bert
from bert_flow_tf.errors import UserError
from bert_flow_tf.tokenizer import read_vocabulary

# Part of every cache key: raise it when the same source would give another folder.
FORMAT_VERSION = 2


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
            save_bert(
                folder / "encoder",
                config,
                weights,
                vocab_file=folder / "vocab.txt",
                do_lower_case=do_lower_case,
            )
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
