"""From a checkpoint of the BERT authors' TF1 code to an encoder folder."""

import os
import pathlib
import re
from typing import Any

import numpy as np

from bert_flow_tf.encoder.convert.bert_config import BertConfig, read_tf1_config
from bert_flow_tf.encoder.convert.encoder_folder import Pretrained, write_encoder_folder
from bert_flow_tf.encoder.convert.folders import BERT_CONFIG_FILE, VOCAB_FILE
from bert_flow_tf.encoder.convert.weights import check_shapes, variable_shapes
from bert_flow_tf.encoder.tokenizer import read_vocabulary
from bert_flow_tf.files.checkpoints import Checkpoint, checkpoint_prefix
from glow.tf1_checkpoint import FLOW_SCOPE

Path = str | os.PathLike
# What training leaves beside the encoder: heads of pre-training and tasks, the optimiser's moments, BERT-flow's flow.
_EXTRAS = re.compile(
    rf"cls/|{FLOW_SCOPE}|loss/|signal_early_stopping/|output_(weights|bias)|.*(/adam_[mv]$|global_step)"
)


def convert_tf1(checkpoint: Path, out_dir: Path, *, overwrite: bool = False, **options: Any) -> pathlib.Path:
    """Convert a TF1 BERT checkpoint and return the path of the encoder folder; arguments are `read_tf1`'s."""
    return write_encoder_folder(out_dir, read_tf1(checkpoint, **options), overwrite=overwrite)


def read_tf1(
    checkpoint: Path,
    *,
    config_file: Path | None = None,
    vocab_file: Path | None = None,
    do_lower_case: bool | None = None,
) -> Pretrained:
    """Read a TF1 BERT checkpoint.

    Args:
      checkpoint: folder with `bert_config.json`, `vocab.txt` and `bert_model.ckpt.*`, or a checkpoint's prefix in such
        a folder.
      config_file, vocab_file: the two files, if they are not in the checkpoint's folder.
      do_lower_case: True if the vocabulary is uncased; None decides by its capitals.

    Raises:
      UserError: a file is missing, or the checkpoint, the configuration and the vocabulary do not fit each other.
    """
    prefix = checkpoint_prefix(checkpoint)
    config = read_tf1_config(config_file or prefix.parent / BERT_CONFIG_FILE)
    vocab = read_vocabulary(vocab_file or prefix.parent / VOCAB_FILE)
    return Pretrained(config, vocab, read_tf1_weights(prefix, config), do_lower_case, {"kind": "TF1 checkpoint"})


def read_tf1_weights(prefix: Path, config: BertConfig) -> dict[str, np.ndarray]:
    """Return a dict of TF1 name -> array of the variables in the checkpoint that the configuration asks for.

    Raises:
      UserError: the checkpoint cannot be read, or a variable is missing, unexpected or of another shape.
    """
    checkpoint = Checkpoint(prefix)
    shapes = {name: shape for name, shape in checkpoint.shapes.items() if not _EXTRAS.match(name)}
    check_shapes(shapes, variable_shapes(config), prefix, "this configuration")
    return checkpoint.read(shapes)
