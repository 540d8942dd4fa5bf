"""From a checkpoint of the BERT authors' TF1 code to an encoder folder."""

import os
import pathlib
import re

import numpy as np

from bert_flow_tf.encoder.convert.bert_config import BertConfig, read_tf1_config
from bert_flow_tf.encoder.convert.encoder_folder import write_encoder_folder
from bert_flow_tf.encoder.convert.folders import BERT_CONFIG_FILE, VOCAB_FILE
from bert_flow_tf.encoder.convert.weights import check_shapes, variable_shapes
from bert_flow_tf.encoder.tokenizer import read_vocabulary
from bert_flow_tf.files.checkpoints import Checkpoint, checkpoint_files, checkpoint_prefix
from bert_flow_tf.files.digest import file_digest
from glow.tf1_checkpoint import FLOW_SCOPE

# What training leaves beside the encoder: heads of pre-training and tasks, the optimiser's moments, BERT-flow's flow.
_KNOWN_EXTRAS = re.compile(
    rf"^(cls/.*|{FLOW_SCOPE}.*|loss/.*|output_weights|output_bias|.*/adam_[mv]|.*global_step.*"
    r"|signal_early_stopping/.*)$"
)


def convert_tf1(
    checkpoint: str | os.PathLike,
    out_dir: str | os.PathLike,
    *,
    config_file: str | os.PathLike | None = None,
    vocab_file: str | os.PathLike | None = None,
    do_lower_case: bool | None = None,
    overwrite: bool = False,
) -> pathlib.Path:
    """Convert a TF1 BERT checkpoint and return the path of the encoder folder.

    Args:
      checkpoint: folder with `bert_config.json`, `vocab.txt` and `bert_model.ckpt.*`, or a checkpoint's prefix in such
        a folder.
      config_file, vocab_file: the two files, if they are not in the checkpoint's folder.
      do_lower_case: True if the vocabulary is uncased; None decides by its capitals.

    Raises:
      UserError: a file is missing, or the checkpoint, the configuration and the vocabulary do not fit each other.
    """
    prefix = checkpoint_prefix(checkpoint)
    config_file = config_file or prefix.parent / BERT_CONFIG_FILE
    vocab_file = vocab_file or prefix.parent / VOCAB_FILE
    config = read_tf1_config(config_file)
    weights = read_tf1_weights(prefix, config)
    digests = {name: file_digest(path) for name, path in checkpoint_files(prefix).items()}
    digests |= {BERT_CONFIG_FILE: file_digest(config_file), VOCAB_FILE: file_digest(vocab_file)}
    return write_encoder_folder(
        out_dir,
        config=config,
        vocab=read_vocabulary(vocab_file),
        weights=weights,
        do_lower_case=do_lower_case,
        source={"kind": "TF1 checkpoint", "name": prefix.name, "sha256": digests},
        overwrite=overwrite,
    )


def read_tf1_weights(prefix: str | os.PathLike, config: BertConfig) -> dict[str, np.ndarray]:
    """Return a dict of TF1 name -> array of the variables in the checkpoint that the configuration asks for.

    Raises:
      UserError: the checkpoint cannot be read, or a variable is missing, unexpected or of another shape.
    """
    checkpoint = Checkpoint(prefix)
    shapes = {name: shape for name, shape in checkpoint.shapes.items() if not _KNOWN_EXTRAS.match(name)}
    check_shapes(shapes, variable_shapes(config), prefix, "this configuration")
    return checkpoint.read(shapes)
