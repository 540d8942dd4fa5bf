"""From a bert_flow_tf run that trained its encoder to an encoder folder."""

import os
import pathlib
import re
import shutil
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub

from bert_flow_tf.encoder.convert.encoder_folder import new_encoder_folder, quiet_tensorflow, write_encoder_record
from bert_flow_tf.encoder.convert.folders import BERT_CONFIG_FILE, VOCAB_FILE
from bert_flow_tf.encoder.convert.weights import check_finite
from bert_flow_tf.encoder.handles import EncoderSource
from bert_flow_tf.encoder.tokenizer import vocabulary_asset
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.checkpoints import Checkpoint, checkpoint_prefix
from bert_flow_tf.runs.record import CONFIG_FILE, RunConfig, read_config

# Where a run's tf.train.Checkpoint keeps `SentenceEncoder.variables_by_name`: its keyword is `encoder`.
_PREFIX = "encoder/"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


def is_run_checkpoint(prefix: str | os.PathLike) -> bool:
    """Whether the checkpoint is a bert_flow_tf run's: written by TF2, with a `config.json` beside it."""
    has_config = (pathlib.Path(prefix).parent / CONFIG_FILE).is_file()
    return has_config and "_CHECKPOINTABLE_OBJECT_GRAPH" in Checkpoint(prefix)


def run_checkpoint(run: str | os.PathLike) -> pathlib.Path:
    """Prefix of a run's checkpoint: of the last one in the run's folder, or `run` itself.

    Raises:
      UserError: there is none, or it is no run's.
    """
    prefix = checkpoint_prefix(run)
    if not is_run_checkpoint(prefix):
        raise UserError(f"{prefix}: found no {CONFIG_FILE} beside it, expected a checkpoint of a bert_flow_tf run")
    return prefix


def checkpoint_config(prefix: str | os.PathLike) -> RunConfig:
    """The configuration of the run whose checkpoint this is; a `UserError` where it cannot be read."""
    config = read_config(pathlib.Path(prefix).parent)
    assert config is not None, "is_run_checkpoint looks for it"
    return config


def run_step(prefix: str | os.PathLike) -> int:
    """Number of training steps that a run's checkpoint has behind it."""
    return int(Checkpoint(prefix)[f"step{_SUFFIX}"])


def run_variables(prefix: str | os.PathLike) -> dict[str, np.ndarray]:
    """dict of name -> array of the encoder's variables in a run's checkpoint.

    Raises:
      UserError: the checkpoint holds none.
    """
    checkpoint = Checkpoint(prefix)
    variables = {}
    for key in checkpoint.shapes:
        if key.startswith(_PREFIX) and key.endswith(_SUFFIX):
            # tf.train.Checkpoint writes the "/" of a name as ".S" and its "." as "..".
            escaped = key.removeprefix(_PREFIX).removesuffix(_SUFFIX)
            name = re.sub(r"\.([.S])", lambda match: "." if match[1] == "." else "/", escaped)
            variables[name] = checkpoint[key]
    if not variables:
        raise UserError(f"{prefix}: holds no variables of an encoder, expected a checkpoint of a run that trained it")
    return variables


def convert_run(
    prefix: str | os.PathLike, source: EncoderSource, out_dir: str | os.PathLike, *, overwrite: bool = False
) -> pathlib.Path:
    """Path of the encoder folder with the encoder that a bert_flow_tf run trained, which it started from `source`.

    Raises:
      UserError: the run did not train its encoder, or the variables do not fit the encoder.
    """
    if not checkpoint_config(prefix).encoder_trained:
        raise UserError(f"{prefix}: the run did not train its encoder; the one it used is {source.bert_hub}")
    origin = {"kind": "run", "name": pathlib.Path(prefix).name}
    return export_encoder(source, run_variables(prefix), out_dir, origin=origin, overwrite=overwrite)


def export_encoder(
    source: EncoderSource,
    variables: dict[str, np.ndarray],
    out_dir: str | os.PathLike,
    *,
    origin: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> pathlib.Path:
    """Path of an encoder folder that is the encoder of `source` with other weights: the same graph, saved again.

    Args:
      variables: dict of name -> array of all the encoder's variables, named as in `SentenceEncoder.variables_by_name`.
      origin: for `source.json`; None says that weights were exported.

    Raises:
      UserError: a variable is missing, left over, of another shape or not finite, or `out_dir` may not be written.
    """
    check_finite(variables, str(out_dir))
    with quiet_tensorflow(), new_encoder_folder(out_dir, overwrite=overwrite) as folder:
        encoder = hub.load(str(source.encoder_dir))
        _assign(encoder, variables, source.bert_hub)
        tf.saved_model.save(encoder, str(folder / "encoder"))
        copy_beside_encoder(source, folder)
        record = {"do_lower_case": source.do_lower_case, "started_from": source.fingerprint}
        write_encoder_record(folder, record | (origin or {"kind": "exported"}))
    return pathlib.Path(out_dir)


def copy_beside_encoder(source: EncoderSource, folder: pathlib.Path) -> None:
    """Copies what does not depend on the weights into an encoder folder: vocabulary and configuration."""
    shutil.copytree(source.preprocess_dir, folder / "preprocess")
    shutil.copyfile(vocabulary_asset(source.preprocess_dir), folder / VOCAB_FILE)
    config = source.encoder_dir.parent / BERT_CONFIG_FILE
    if config.is_file():
        shutil.copyfile(config, folder / BERT_CONFIG_FILE)


def floating_variables(encoder: Any) -> dict[str, tf.Variable]:
    """dict of name -> variable of an encoder that TensorFlow Hub has loaded, without dropout's states."""
    return {v.name.removesuffix(":0"): v for v in encoder.variables if v.dtype.is_floating}


def _assign(encoder: Any, variables: dict[str, np.ndarray], name: str) -> None:
    held = floating_variables(encoder)
    for what, names in (("missing", held.keys() - variables.keys()), ("left over", variables.keys() - held.keys())):
        if names:
            raise UserError(
                f"{name}: variables {what} for this encoder: {', '.join(sorted(names)[:5])} ({len(names)} in all)"
            )
    for variable_name, variable in held.items():
        value = np.asarray(variables[variable_name])
        if value.shape != tuple(variable.shape):
            raise UserError(
                f"{name}: variable {variable_name}: found shape {list(value.shape)}, expected {list(variable.shape)}"
            )
        variable.assign(value)
