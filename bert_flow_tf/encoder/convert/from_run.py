"""From a bert_flow_tf run that trained its encoder to an encoder folder."""

import contextlib
import os
import pathlib
import re
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub

from bert_flow_tf.encoder.convert.encoder_folder import quiet_tensorflow, write_encoder_record
from bert_flow_tf.encoder.convert.folders import BERT_CONFIG_FILE, ENCODER_FOLDER, VOCAB_FILE
from bert_flow_tf.encoder.convert.weights import check_arrays
from bert_flow_tf.encoder.handles import EncoderSource
from bert_flow_tf.encoder.tokenizer import vocabulary_asset
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import new_output
from bert_flow_tf.files.checkpoints import Checkpoint, checkpoint_prefix
from bert_flow_tf.runs.record import CONFIG_FILE, RunConfig, read_config

# Where a run's tf.train.Checkpoint keeps `SentenceEncoder.variables_by_name`: its keyword is `encoder`.
_PREFIX = "encoder/"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


def config_of_checkpoint(prefix: pathlib.Path) -> RunConfig | None:
    """The `config.json` of the bert_flow_tf run whose checkpoint this is; None for any other checkpoint.

    Raises:
      UserError: it cannot be read.
    """
    has_config = (prefix.parent / CONFIG_FILE).is_file()
    # A checkpoint of TF1 may lie beside another program's config.json.
    return read_config(prefix.parent) if has_config and "_CHECKPOINTABLE_OBJECT_GRAPH" in Checkpoint(prefix) else None


def run_checkpoint(run: str | os.PathLike) -> tuple[pathlib.Path, RunConfig]:
    """Prefix of a run's checkpoint, of the last one in the run's folder or `run` itself, and the run's configuration.

    Raises:
      UserError: there is none, or it is no run's.
    """
    prefix = checkpoint_prefix(run)
    config = config_of_checkpoint(prefix)
    if config is None:
        raise UserError(f"{prefix}: found no {CONFIG_FILE} beside it, expected a checkpoint of a bert_flow_tf run")
    return prefix, config


def run_step(prefix: str | os.PathLike) -> int:
    """Number of training steps that a run's checkpoint has behind it."""
    return int(Checkpoint(prefix)[f"step{_SUFFIX}"])


def run_variables(prefix: str | os.PathLike) -> dict[str, np.ndarray]:
    """dict of name -> array of the encoder's variables in a run's checkpoint; empty where the run did not train it."""
    checkpoint = Checkpoint(prefix)
    variables = {}
    for key in checkpoint.shapes:
        if key.startswith(_PREFIX) and key.endswith(_SUFFIX):
            # tf.train.Checkpoint writes the "/" of a name as ".S" and its "." as "..".
            escaped = key.removeprefix(_PREFIX).removesuffix(_SUFFIX)
            name = re.sub(r"\.([.S])", lambda match: "." if match[1] == "." else "/", escaped)
            variables[name] = checkpoint[key]
    return variables


def convert_run(
    prefix: pathlib.Path, source: EncoderSource, out_dir: str | os.PathLike, *, overwrite: bool = False
) -> pathlib.Path:
    """Path of the encoder folder with the encoder that a bert_flow_tf run trained, which it started from `source`.

    Raises:
      UserError: the run did not train its encoder, the variables do not fit, or `out_dir` may not be written.
    """
    variables = run_variables(prefix)
    if not variables:
        raise UserError(f"{prefix}: the run did not train its encoder; the one it used is {source.bert_hub}")
    with new_output(out_dir, ENCODER_FOLDER, overwrite=overwrite) as folder:
        write_with_weights(folder, source, variables, {"kind": "run", "name": prefix.name})
    return pathlib.Path(out_dir)


def write_with_weights(
    folder: pathlib.Path, source: EncoderSource, variables: dict[str, np.ndarray], origin: dict[str, str]
) -> None:
    """Fills an encoder folder with the encoder of `source` with other weights: the same graph, saved again.

    Args:
      variables: dict of name -> array of all the encoder's variables, named as in `SentenceEncoder.variables_by_name`.
      origin: where these came from, for `source.json`.

    Raises:
      UserError: a variable is missing, unexpected, of another shape or not finite; nothing is written then.
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


def copy_beside_encoder(source: EncoderSource, folder: pathlib.Path) -> None:
    """Copies what does not depend on the weights into an encoder folder: vocabulary and configuration."""
    shutil.copytree(source.preprocess_dir, folder / "preprocess", copy_function=shutil.copyfile)
    shutil.copyfile(vocabulary_asset(source.preprocess_dir), folder / VOCAB_FILE)
    config = source.encoder_dir.parent / BERT_CONFIG_FILE
    if config.is_file():
        shutil.copyfile(config, folder / BERT_CONFIG_FILE)


@contextlib.contextmanager
def refusing_damaged_model(name: str | os.PathLike, kind: str) -> Iterator[None]:
    """Turns what TensorFlow raises for a SavedModel that is damaged, or is not of its kind, into a `UserError`."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, tf.errors.OpError) as error:
        raise UserError(f"{name}: cannot be loaded as {kind}: {' '.join(str(error).split())}") from error


def floating_variables(encoder: Any) -> dict[str, tf.Variable]:
    """dict of name -> variable of an encoder that TensorFlow Hub has loaded, without dropout's states."""
    return {v.name.removesuffix(":0"): v for v in encoder.variables if v.dtype.is_floating}
