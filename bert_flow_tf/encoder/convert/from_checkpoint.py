"""Read an encoder from a checkpoint of TF1 or of a run."""

import pathlib
import re

from bert_flow_tf.encoder.convert.encoder_folder import Pretrained, write_with_weights
from bert_flow_tf.encoder.convert.folders import BERT_CONFIG_FILE, ENCODER_FOLDER, VOCAB_FILE
from bert_flow_tf.encoder.convert.weights import check_arrays, read_tf1_config, variable_shapes
from bert_flow_tf.encoder.handles import EncoderSource
from bert_flow_tf.encoder.tokenizer import is_uncased, read_vocabulary
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import new_output
from bert_flow_tf.files.checkpoints import Checkpoint, checkpoint_prefix
from bert_flow_tf.files.reading import AnyPath
from bert_flow_tf.runs.record import CONFIG_FILE, RunConfig, read_config
from glow.tf1_checkpoint import FLOW_SCOPE

# Training adds these variables to the encoder's: heads, the optimiser's moments, BERT-flow's flow.
_HEADS = rf"cls/|{FLOW_SCOPE}|loss/|signal_early_stopping/|output_(weights|bias)"
_EXTRAS = re.compile(rf"{_HEADS}|.*(/adam_[mv]$|global_step)")
# A run's tf.train.Checkpoint stores `SentenceEncoder.variables_by_name` under its keyword `encoder`.
_PREFIX, _SUFFIX = "encoder/", "/.ATTRIBUTES/VARIABLE_VALUE"


def read_tf1(
    checkpoint: AnyPath,
    config_file: AnyPath | None = None,
    vocab_file: AnyPath | None = None,
    do_lower_case: bool | None = None,
) -> Pretrained:
    """Read a TF1 BERT checkpoint; raise `UserError` if files do not match.

    Args:
      checkpoint: folder with `bert_config.json`, `vocab.txt` and `bert_model.ckpt.*`, or the checkpoint's prefix.
      config_file, vocab_file: paths of these two files, if they are in another folder.
      do_lower_case: True if the vocabulary is uncased; None to detect it, see `tokenizer.is_uncased`.
    """
    prefix = checkpoint_prefix(checkpoint)
    config = read_tf1_config(config_file or prefix.parent / BERT_CONFIG_FILE)
    vocab = read_vocabulary(vocab_file or prefix.parent / VOCAB_FILE)
    do_lower_case = is_uncased(do_lower_case, vocab, prefix.absolute().parent.name)
    stored = Checkpoint(prefix)
    weights = stored.read(name for name in stored.shapes if not _EXTRAS.match(name))
    check_arrays(weights, variable_shapes(config), prefix, "this configuration")
    return Pretrained(config, vocab, weights, do_lower_case, {"kind": "TF1 checkpoint"})


def config_of_checkpoint(prefix: pathlib.Path) -> RunConfig | None:
    """Return the `config.json` of a run's checkpoint; None for other checkpoints."""
    # A TF1 checkpoint may lie beside another program's config.json.
    is_run = (prefix.parent / CONFIG_FILE).is_file() and "_CHECKPOINTABLE_OBJECT_GRAPH" in Checkpoint(prefix).shapes
    return read_config(prefix.parent) if is_run else None


def run_checkpoint(run: AnyPath) -> tuple[pathlib.Path, RunConfig]:
    """Return prefix and configuration of a run's last, or named, checkpoint."""
    prefix = checkpoint_prefix(run)
    if (config := config_of_checkpoint(prefix)) is None:
        raise UserError(f"{prefix}: found no {CONFIG_FILE} beside it, expected a checkpoint of a bert_flow_tf run")
    return prefix, config


def run_step(prefix: AnyPath) -> int:
    return int(Checkpoint(prefix)[f"step{_SUFFIX}"])


def convert_run(prefix: AnyPath, source: EncoderSource, out_dir: AnyPath, *, overwrite: bool = False) -> pathlib.Path:
    """Write the encoder that a run trained from `source`; return its folder."""
    checkpoint = Checkpoint(prefix)
    keys = [key for key in checkpoint.shapes if key.startswith(_PREFIX) and key.endswith(_SUFFIX)]
    if not keys:
        raise UserError(f"{prefix}: the run did not train its encoder; use {source.bert_hub}")
    # tf.train.Checkpoint writes ".S" for the "/" of a name.
    variables = {key.removeprefix(_PREFIX).removesuffix(_SUFFIX).replace(".S", "/"): checkpoint[key] for key in keys}
    with new_output(out_dir, ENCODER_FOLDER, overwrite=overwrite) as folder:
        write_with_weights(folder, source, variables, {"kind": "run", "name": pathlib.Path(prefix).name})
    return pathlib.Path(out_dir)
