"""From a checkpoint of the BERT authors' TF1 code to an encoder folder."""

import pathlib
import re

import tensorflow as tf

from bert_flow_tf.convert.bert_config import read_tf1_config
from bert_flow_tf.convert.digest import file_digest
from bert_flow_tf.convert.encoder_folder import write_encoder_folder
from bert_flow_tf.convert.weights import check_variables
from bert_flow_tf.errors import UserError

# What training leaves beside the encoder: pre-training and task heads, the optimiser's slots, and BERT-flow's flow.
_KNOWN_EXTRAS = re.compile(
    r"^(cls/.*|bert/flow/.*|loss/.*|output_weights|output_bias|.*/adam_[mv]|.*global_step.*|signal_early_stopping/.*)$"
)


def convert_tf1(checkpoint, out_dir, *, config_file=None, vocab_file=None, do_lower_case=None, overwrite=False):
    """Path of the encoder folder made from a TF1 BERT checkpoint.

    Args:
      checkpoint: folder with `bert_config.json`, `vocab.txt` and `bert_model.ckpt.*`, or a checkpoint's prefix in such
        a folder.
      out_dir: folder to make.
      config_file, vocab_file: the two files, when they are not in the checkpoint's folder.
      do_lower_case: whether the vocabulary is uncased; None decides by whether it has pieces with capitals.
      overwrite: whether an encoder folder at `out_dir` may be replaced.

    Raises:
      UserError: a file is missing, or the checkpoint, the configuration and the vocabulary do not fit each other.
    """
    prefix = checkpoint_prefix(checkpoint)
    config_file = config_file or prefix.parent / "bert_config.json"
    vocab_file = vocab_file or prefix.parent / "vocab.txt"
    config = read_tf1_config(config_file)
    weights = read_tf1_weights(prefix, config)
    digests = {name: file_digest(path) for name, path in checkpoint_files(prefix).items()}
    digests |= {"bert_config.json": file_digest(config_file), "vocab.txt": file_digest(vocab_file)}
    return write_encoder_folder(
        out_dir,
        config=config,
        vocab_file=vocab_file,
        weights=weights,
        do_lower_case=do_lower_case,
        source={"kind": "TF1 checkpoint", "name": prefix.name, "sha256": digests},
        overwrite=overwrite,
    )


def checkpoint_prefix(checkpoint):
    """pathlib.Path of the checkpoint's prefix, from the prefix itself or a folder with a checkpoint.

    Of several in a folder it is the one that the folder's file `checkpoint` names, as TensorFlow takes it.

    Raises:
      UserError: there is no checkpoint, or several and none is named.
    """
    path = pathlib.Path(checkpoint)
    if not path.is_dir():
        if not pathlib.Path(f"{path}.index").is_file():
            raise UserError(f"{path}: neither a folder nor a checkpoint's prefix: there is no {path.name}.index")
        return path
    if (path / "bert_model.ckpt.index").is_file():
        return path / "bert_model.ckpt"
    found = sorted(file.name.removesuffix(".index") for file in path.glob("*.index"))
    latest = tf.train.latest_checkpoint(str(path)) if len(found) > 1 else None
    if latest is not None:
        return pathlib.Path(latest)
    if len(found) != 1:
        raise UserError(f"{path}: found {', '.join(found) or 'no checkpoint'}, expected bert_model.ckpt.index")
    return path / found[0]


def checkpoint_files(prefix):
    """dict of name -> path of the files of the checkpoint with this prefix, its data before its index."""
    prefix = pathlib.Path(prefix)
    return {path.name: path for path in sorted(prefix.parent.glob(f"{prefix.name}.*")) if path.suffix != ".meta"}


def read_tf1_weights(prefix, config):
    """dict of TF1 name -> array of the encoder variables of the checkpoint, which are those of the `BertConfig`.

    Raises:
      UserError: the checkpoint cannot be read, or a variable is missing, left over or of another shape.
    """
    reader = _open(prefix)
    shapes = {
        name: shape for name, shape in reader.get_variable_to_shape_map().items() if not _KNOWN_EXTRAS.match(name)
    }
    check_variables(shapes, config, prefix)
    try:
        return {name: reader.get_tensor(name) for name in shapes}
    except (tf.errors.OpError, IndexError) as error:
        raise UserError(f"{prefix}: checkpoint cannot be read, its data file does not fit its index") from error


def _open(prefix):
    try:
        return tf.train.load_checkpoint(str(prefix))
    except (tf.errors.OpError, ValueError) as error:
        raise UserError(f"{prefix}: checkpoint cannot be read: {str(error).splitlines()[0]}") from error
