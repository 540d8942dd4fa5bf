"""From a run of ours that trained its encoder to an encoder folder."""

import pathlib
import re
import shutil

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub

from bert_flow_tf.convert.encoder_folder import FORMAT_VERSION, new_encoder_folder, quiet_tensorflow, write_json
from bert_flow_tf.convert.weights import check_finite
from bert_flow_tf.errors import UserError
from bert_flow_tf.experiment import read_config
from bert_flow_tf.tokenizer import vocabulary_asset

# Where a run's tf.train.Checkpoint keeps `SentenceEncoder.variables_by_name`: its keyword is `encoder`.
_PREFIX = "encoder/"
_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


def is_run_checkpoint(prefix):
    """Whether the checkpoint with this prefix is of a run of ours: written by TF2, with a `config.json` beside it."""
    if not (pathlib.Path(prefix).parent / "config.json").is_file():
        return False
    return tf.train.load_checkpoint(str(prefix)).has_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")


def run_checkpoint(run):
    """pathlib.Path of a checkpoint's prefix: of the run folder's latest, or `run` itself.

    Raises:
      UserError: there is none, or no `config.json` beside it.
    """
    path = pathlib.Path(run)
    if path.is_dir():
        latest = tf.train.latest_checkpoint(str(path))
        if latest is None:
            raise UserError(f"{path}: holds no checkpoint, expected the folder of a finished run")
        path = pathlib.Path(latest)
    elif not pathlib.Path(f"{path}.index").is_file():
        raise UserError(f"{path}: neither a folder nor a checkpoint's prefix: there is no {path.name}.index")
    if not is_run_checkpoint(path):
        raise UserError(f"{path}: not a checkpoint of a run of ours, expected config.json beside it")
    return path


def run_variables(prefix):
    """dict of name -> array of the encoder's variables in a run's checkpoint with this prefix.

    Raises:
      UserError: the checkpoint holds none.
    """
    reader = tf.train.load_checkpoint(str(prefix))
    variables = {}
    for key in reader.get_variable_to_shape_map():
        if key.startswith(_PREFIX) and key.endswith(_SUFFIX):
            # tf.train.Checkpoint writes the "/" of a name as ".S" and its "." as "..".
            escaped = key.removeprefix(_PREFIX).removesuffix(_SUFFIX)
            name = re.sub(r"\.([.S])", lambda match: "." if match[1] == "." else "/", escaped)
            variables[name] = reader.get_tensor(key)
    if not variables:
        raise UserError(f"{prefix}: holds no variables of an encoder, expected a checkpoint of a run that trained it")
    return variables


def convert_run(prefix, source, out_dir, *, overwrite=False):
    """Path of the encoder folder with the encoder that a run of ours trained.

    Args:
      prefix: of the run's checkpoint, as `run_checkpoint` gives it.
      source: `EncoderSource` of the encoder that the run started from.
      out_dir: folder to make.
      overwrite: whether an encoder folder at `out_dir` may be replaced.

    Raises:
      UserError: the run did not train its encoder, or the variables do not fit the encoder.
    """
    if not read_config(pathlib.Path(prefix).parent)["encoder_trained"]:
        raise UserError(f"{prefix}: the run did not train its encoder; the one it used is {source.bert_hub}")
    origin = {"kind": "run", "name": pathlib.Path(prefix).name, "started_from": source.fingerprint}
    return export_encoder(source, run_variables(prefix), out_dir, origin=origin, overwrite=overwrite)


def export_encoder(source, variables, out_dir, *, origin=None, overwrite=False):
    """Path of an encoder folder that is the encoder of `source` with other weights: the same graph, saved again.

    Args:
      source: `EncoderSource`.
      variables: dict of name -> array of all the encoder's variables, named as `SentenceEncoder.variables_by_name`
        names them.
      out_dir: folder to make.
      origin: dict for `source.json`; None says that weights were exported.
      overwrite: whether an encoder folder at `out_dir` may be replaced.

    Raises:
      UserError: a variable is missing, left over, of another shape or not finite, or `out_dir` exists.
    """
    check_finite(variables, str(out_dir))
    with quiet_tensorflow(), new_encoder_folder(out_dir, overwrite=overwrite) as folder:
        encoder = hub.load(str(source.encoder_dir))
        _assign(encoder, variables, source.bert_hub)
        tf.saved_model.save(encoder, str(folder / "encoder"))
        shutil.copytree(source.preprocess_dir, folder / "preprocess")
        shutil.copyfile(vocabulary_asset(source.preprocess_dir), folder / "vocab.txt")
        config = source.encoder_dir.parent / "bert_config.json"
        if config.is_file():
            shutil.copyfile(config, folder / "bert_config.json")
        origin = origin or {"kind": "exported", "started_from": source.fingerprint}
        write_json(
            folder / "source.json", {"format_version": FORMAT_VERSION, "do_lower_case": source.do_lower_case, **origin}
        )
    return pathlib.Path(out_dir)


def _assign(encoder, variables, name):
    held = {variable.name.removesuffix(":0"): variable for variable in encoder.variables if variable.dtype.is_floating}
    for what, names in (("missing", held.keys() - variables.keys()), ("left over", variables.keys() - held.keys())):
        if names:
            raise UserError(
                f"{name}: variables {what} for this encoder: {', '.join(sorted(names)[:5])} ({len(names)} in all)"
            )
    for variable_name, variable in held.items():
        value = np.asarray(variables[variable_name])
        if value.shape != tuple(variable.shape):
            raise UserError(
                f"{name}: variable {variable_name} has shape {list(variable.shape)}, found {list(value.shape)}"
            )
        variable.assign(value)
