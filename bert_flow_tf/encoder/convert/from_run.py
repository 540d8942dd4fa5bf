"""Checkpoints of bert_flow_tf runs: their configuration, and their encoder as an encoder folder."""

import os
import pathlib

from bert_flow_tf.encoder.convert.encoder_folder import write_with_weights
from bert_flow_tf.encoder.convert.folders import ENCODER_FOLDER
from bert_flow_tf.encoder.handles import EncoderSource
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import new_output
from bert_flow_tf.files.checkpoints import Checkpoint, checkpoint_prefix
from bert_flow_tf.runs.record import CONFIG_FILE, RunConfig, read_config

# Where a run's tf.train.Checkpoint keeps `SentenceEncoder.variables_by_name`: its keyword is `encoder`.
_PREFIX = "encoder/"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


def config_of_checkpoint(prefix: pathlib.Path) -> RunConfig | None:
    """Return the `config.json` of the bert_flow_tf run of this checkpoint; None for other checkpoints."""
    has_config = (prefix.parent / CONFIG_FILE).is_file()
    # A checkpoint of TF1 may lie beside another program's config.json.
    return read_config(prefix.parent) if has_config and "_CHECKPOINTABLE_OBJECT_GRAPH" in Checkpoint(prefix) else None


def run_checkpoint(run: str | os.PathLike) -> tuple[pathlib.Path, RunConfig]:
    """Return the prefix of a run's checkpoint, the last one if `run` is a folder, and the run's configuration.

    Raises:
      UserError: there is no checkpoint, or it is not a run's.
    """
    prefix = checkpoint_prefix(run)
    config = config_of_checkpoint(prefix)
    if config is None:
        raise UserError(f"{prefix}: found no {CONFIG_FILE} beside it, expected a checkpoint of a bert_flow_tf run")
    return prefix, config


def run_step(prefix: str | os.PathLike) -> int:
    """Return the number of training steps before a run's checkpoint."""
    return int(Checkpoint(prefix)[f"step{_SUFFIX}"])


def convert_run(
    prefix: pathlib.Path, source: EncoderSource, out_dir: str | os.PathLike, *, overwrite: bool = False
) -> pathlib.Path:
    """Write the encoder that a bert_flow_tf run trained from `source`, and return the path of its folder.

    Raises:
      UserError: the run did not train its encoder, the variables do not fit, or `out_dir` may not be written.
    """
    checkpoint = Checkpoint(prefix)
    keys = [key for key in checkpoint.shapes if key.startswith(_PREFIX) and key.endswith(_SUFFIX)]
    if not keys:
        raise UserError(f"{prefix}: the run did not train its encoder; the one it used is {source.bert_hub}")
    # tf.train.Checkpoint writes the "/" of a name as ".S".
    variables = {key.removeprefix(_PREFIX).removesuffix(_SUFFIX).replace(".S", "/"): checkpoint[key] for key in keys}
    with new_output(out_dir, ENCODER_FOLDER, overwrite=overwrite) as folder:
        write_with_weights(folder, source, variables, {"kind": "run", "name": prefix.name})
    return pathlib.Path(out_dir)
