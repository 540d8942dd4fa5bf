"""From a checkpoint that the original's training wrote to a run of ours, and back."""

import dataclasses
import json
import os
import pathlib
import re

import numpy as np
import tensorflow as tf

from bert_flow_tf import atomic, experiment
from bert_flow_tf.convert.digest import file_digest
from bert_flow_tf.convert.encoder_folder import has_capitals
from bert_flow_tf.convert.from_run import run_checkpoint
from bert_flow_tf.convert.from_tf1 import checkpoint_files, checkpoint_prefix
from bert_flow_tf.convert.weights import keras_names, to_tf1_shape
from bert_flow_tf.encoder import recorded_encoder, resolve_encoder
from bert_flow_tf.errors import UserError
from bert_flow_tf.run_model import (
    TF1_FLOW,
    TF1_OUTPUT_WEIGHTS,
    assign_tf1_learned,
    build_model,
    checkpoint_of,
    encoder_record,
    flow_config,
    restore,
)
from bert_flow_tf.tokenizer import read_vocabulary, vocabulary_asset
from bert_flow_tf.training import CHECKPOINT_NAME
from glow.tf1_checkpoint import tf1_variables

_BERT = "bert/embeddings/word_embeddings"
# What marks a folder as made here: a flag in a run's config.json, and an entry of the file beside a TF1 checkpoint.
_TF1_CHECKPOINT = "tf1_checkpoint"
_SOURCE_FILE, _RUN = "converted_from.json", "run_of_bert_flow_tf"
# The tanh approximation has another name in our configurations, and is the only GELU that the original has.
_TF1_GELU = {"gelu_tanh": "gelu"}


@dataclasses.dataclass(frozen=True)
class Tf1Run:
    """What a checkpoint of the original does not say of the run that wrote it; the names are those of its flags.

    Attributes:
      sentence_embedding_type: name of the pooling.
      flow_model_config: name of the flow's configuration, or a JSON file.
      max_seq_length: ids that a sentence was cut to.
      low_dim: see `model.reduce_dimension`.
      bert_hub, preprocess_hub: the encoder, where the checkpoint holds none.
      bert_config_file, vocab_file: of the encoder that the checkpoint holds; None are the files beside it.
      do_lower_case: whether that vocabulary is uncased; None decides by whether it has pieces with capitals.
    """

    sentence_embedding_type: str
    flow_model_config: str = "config_l3_d3_w32"
    max_seq_length: int = 64
    low_dim: int = -1
    bert_hub: str | None = None
    preprocess_hub: str | None = None
    bert_config_file: str | None = None
    vocab_file: str | None = None
    do_lower_case: bool | None = None


def convert_tf1_run(checkpoint, out_dir, tf1_run, *, overwrite=False):
    """Path of the directory of a run of ours with the flow, the classifier and the encoder of the original's run.

    As every run, it names its encoder and does not hold it: the encoder's files, or the TF1 checkpoint that it came
    from, must stay where they are.

    Args:
      checkpoint: folder of the original's run, for its last checkpoint, or the prefix of a checkpoint. It may hold
        BERT or none, a classifier or none, and the optimiser's moments, which are passed over.
      out_dir: directory to make; `run_siamese --do_predict`, `bert-flow export` and `BertFlow.load` take it.
      tf1_run: `Tf1Run`.
      overwrite: whether a run at `out_dir` may be replaced.

    Raises:
      UserError: the checkpoint holds no flow; it, the flow's configuration and the encoder do not fit each other; or
        `out_dir` exists.
    """
    out_dir = pathlib.Path(out_dir)
    _check_out(out_dir, experiment.CONFIG_FILE, _TF1_CHECKPOINT, overwrite)
    prefix = checkpoint_prefix(checkpoint)
    reader = _open(prefix)
    shapes = reader.get_variable_to_shape_map()
    if not any(name.startswith(TF1_FLOW) for name in shapes):
        raise UserError(f"{prefix}: holds no variable below {TF1_FLOW}, expected a checkpoint with a flow")
    flags = _encoder_flags(prefix, _BERT in shapes, tf1_run)
    source = resolve_encoder(**flags)
    step = int(reader.get_tensor("global_step")) if "global_step" in shapes else _step_of_name(prefix)
    index = checkpoint_files(prefix)[f"{prefix.name}.index"]
    config = {
        "format_version": experiment.FORMAT_VERSION,
        **encoder_record(source, flags),
        "sentence_embedding_type": tf1_run.sentence_embedding_type,
        "max_seq_length": tf1_run.max_seq_length,
        "low_dim": tf1_run.low_dim,
        "flow": True,
        "flow_config": flow_config(tf1_run.flow_model_config).to_dict(),
        # What the original trained of it is in the encoder that was converted from the same checkpoint.
        "encoder_trained": False,
        "num_labels": shapes[TF1_OUTPUT_WEIGHTS][0] if TF1_OUTPUT_WEIGHTS in shapes else None,
        "task_name": None,
        "data": {"num_examples": None, "fingerprint": None},
        "flags": {_TF1_CHECKPOINT: f"{prefix.name} {file_digest(index)}"},
    }
    model = build_model(source, config)
    assign_tf1_learned(model, prefix)
    with atomic.new_folder(out_dir) as folder:
        folder.mkdir()
        parts = {"step": tf.Variable(step, dtype=tf.int64), **checkpoint_of(model, with_encoder=False)}
        manager = tf.train.CheckpointManager(
            tf.train.Checkpoint(**parts), str(folder), max_to_keep=1, checkpoint_name=CHECKPOINT_NAME
        )
        manager.save(checkpoint_number=step)
        atomic.write_atomically(folder / experiment.CONFIG_FILE, json.dumps(config, indent=2) + "\n")
        results = {"steps": step, "converted_from": prefix.name}
        atomic.write_atomically(folder / experiment.TRAIN_RESULTS_FILE, json.dumps(results, indent=2) + "\n")
    return out_dir


def write_tf1_run(run, out_dir, *, overwrite=False):
    """Prefix of a TF1 checkpoint in the folder `out_dir` with a run's encoder, flow and classifier under TF1's names.

    Beside it stand `vocab.txt` and, where the encoder was converted by us, `bert_config.json`: the folder is what the
    original takes as `--init_checkpoint`, `--vocab_file` and `--bert_config_file`, and what `convert_tf1_run` takes.

    Args:
      run: a run's directory, for its last checkpoint, or the prefix of one of its checkpoints.
      out_dir: folder to make.
      overwrite: whether a folder that this wrote before may be replaced.

    Raises:
      UserError: it is no run, or its encoder has variables that no TF1 BERT has; or `out_dir` exists.
    """
    out_dir = pathlib.Path(out_dir)
    _check_out(out_dir, _SOURCE_FILE, _RUN, overwrite)
    prefix = run_checkpoint(run)
    config = experiment.read_config(prefix.parent)
    source = recorded_encoder(config)
    model = build_model(source, config)
    restore(model, prefix, with_encoder=config["encoder_trained"])
    arrays = _encoder_arrays(model.encoder)
    if model.flow is not None:
        arrays |= tf1_variables(model.flow)
    if model.output_weights is not None:
        arrays[TF1_OUTPUT_WEIGHTS] = model.output_weights.numpy()
    step = int(tf.train.load_checkpoint(str(prefix)).get_tensor("step/.ATTRIBUTES/VARIABLE_VALUE"))
    arrays["global_step"] = np.int64(step)
    name = f"{CHECKPOINT_NAME}-{step}"
    with atomic.new_folder(out_dir) as folder:
        folder.mkdir()
        tf.raw_ops.SaveV2(
            prefix=str(folder / name),
            tensor_names=list(arrays),
            shape_and_slices=[""] * len(arrays),
            tensors=list(arrays.values()),
        )
        tf.compat.v1.train.update_checkpoint_state(str(folder), name)
        source_record = {_RUN: prefix.name, "encoder": source.to_dict()}
        atomic.write_atomically(folder / _SOURCE_FILE, json.dumps(source_record, indent=2) + "\n")
        (folder / "vocab.txt").write_bytes(vocabulary_asset(source.preprocess_dir).read_bytes())
        config_file = source.encoder_dir.parent / "bert_config.json"
        if config_file.is_file():
            fields = json.loads(config_file.read_text(encoding="utf-8"))
            fields["hidden_act"] = _TF1_GELU.get(fields["hidden_act"], fields["hidden_act"])
            atomic.write_atomically(folder / "bert_config.json", json.dumps(fields, indent=2) + "\n")
    return out_dir / name


def _check_out(out_dir, file, key, overwrite):
    """Raises UserError where `out_dir` exists, unless it may be overwritten: its `file` then holds the `key`."""
    if not out_dir.exists():
        return
    if not overwrite:
        raise UserError(f"--out={out_dir}: exists, expected a new folder or --overwrite")
    try:
        made_here = f'"{key}": ' in (out_dir / file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        made_here = False
    if not made_here:
        raise UserError(f"--out={out_dir}: exists and was not made by this conversion, expected a new folder")


def _open(prefix):
    try:
        return tf.train.load_checkpoint(str(prefix))
    except (tf.errors.OpError, ValueError) as error:
        raise UserError(f"{prefix}: checkpoint cannot be read: {str(error).splitlines()[0]}") from error


def _encoder_flags(prefix, holds_bert, tf1_run):
    """What `resolve_encoder` is to be told: the checkpoint's own encoder, or another where it holds none."""
    useless = ("bert_hub", "preprocess_hub") if holds_bert else ("bert_config_file", "vocab_file")
    for flag in useless:
        if getattr(tf1_run, flag):
            found, expected = (
                ("holds an encoder", "--bert_config_file and --vocab_file, or the two files beside it")
                if holds_bert
                else ("holds no encoder", "--bert_hub")
            )
            raise UserError(f"--{flag}={getattr(tf1_run, flag)}: {prefix} {found}, expected {expected}")
    if not holds_bert:
        if not tf1_run.bert_hub:
            raise UserError(f"--bert_hub: missing, {prefix} holds a flow without its encoder")
        if tf1_run.do_lower_case is not None:
            raise UserError("--cased/--uncased: the encoder of --bert_hub knows its vocabulary, expected neither")
        return {"bert_hub": tf1_run.bert_hub, "preprocess_hub": tf1_run.preprocess_hub}
    flags = {"init_checkpoint": str(prefix)}
    for flag, name in (("bert_config_file", "bert_config.json"), ("vocab_file", "vocab.txt")):
        path = pathlib.Path(getattr(tf1_run, flag) or prefix.parent / name)
        if not path.is_file():
            raise UserError(f"--{flag}: found no {path}, expected that of the encoder in {prefix}")
        flags[flag] = os.fspath(path)
    lower = tf1_run.do_lower_case
    return flags | {"do_lower_case": not has_capitals(read_vocabulary(flags["vocab_file"])) if lower is None else lower}


def _step_of_name(prefix):
    number = re.search(r"-(\d+)$", prefix.name)
    return int(number[1]) if number else 0


def _encoder_arrays(encoder):
    """dict of TF1 name -> array of the encoder's variables."""
    variables = dict(encoder.variables_by_name)
    arrays = {}
    for tf1_name, keras_name in keras_names(encoder.num_layers).items():
        if keras_name not in variables:
            raise UserError(f"{encoder.source.bert_hub}: has no variable {keras_name}, expected tf-models' BERT")
        arrays[tf1_name] = to_tf1_shape(tf1_name, variables.pop(keras_name).numpy())
    if variables:
        raise UserError(f"{encoder.source.bert_hub}: no TF1 BERT has a variable {min(variables)}")
    return arrays
