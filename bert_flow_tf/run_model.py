"""The model of a run: its configuration, the model built from it, and the weights of a checkpoint."""

import os

import numpy as np
import tensorflow as tf
from absl import logging

from bert_flow_tf import experiment
from bert_flow_tf.convert.digest import file_digest
from bert_flow_tf.convert.from_run import is_run_checkpoint
from bert_flow_tf.convert.from_tf1 import checkpoint_prefix
from bert_flow_tf.encoder import SentenceEncoder
from bert_flow_tf.errors import UserError
from bert_flow_tf.model import SiameseBertFlow
from glow.config import GlowConfig
from glow.flow import Glow
from glow.tf1_checkpoint import load_tf1_checkpoint

# Where the original's checkpoints keep what it learned beside BERT.
TF1_FLOW = "bert/flow/"
TF1_OUTPUT_WEIGHTS = "loss/output_weights"


def flow_config(name_or_path):
    """`GlowConfig` of a shipped configuration's name or a file's path; a mistake in it becomes a `UserError`."""
    try:
        return GlowConfig.load(name_or_path)
    except (ValueError, OSError) as error:
        raise UserError(f"--flow_model_config: {error}") from error


def encoder_flags(settings):
    """The flags that name the encoder, as `resolve_encoder` takes them."""
    names = ("bert_hub", "preprocess_hub", "bert_config_file", "vocab_file", "init_checkpoint", "do_lower_case")
    return {name: getattr(settings, name) for name in names}


def encoder_record(source, flags):
    """The part of a run's `config.json` that says how its encoder is found again.

    Args:
      source: `EncoderSource`.
      flags: dict of what `resolve_encoder` was told; paths become absolute.
    """

    def is_local(value):
        return isinstance(value, str) and (os.path.exists(value) or os.path.exists(f"{value}.index"))

    flags = {name: os.path.abspath(value) if is_local(value) else value for name, value in flags.items()}
    return {"encoder": source.to_dict(), "encoder_flags": flags}


def run_config(settings, task, source, data):
    """The `config.json` of a run: all that using its weights takes, and all that decides whether a run is the same."""
    return {
        "format_version": experiment.FORMAT_VERSION,
        **encoder_record(source, encoder_flags(settings)),
        "sentence_embedding_type": settings.sentence_embedding_type,
        "max_seq_length": settings.max_seq_length,
        "low_dim": settings.low_dim,
        "flow": bool(settings.flow),
        "flow_config": flow_config(settings.flow_model_config).to_dict() if settings.flow else None,
        "encoder_trained": not settings.encoder_is_frozen,
        "num_labels": None if task.is_regression else len(task.label_names),
        "task_name": task.name,
        "data": None if data is None else {"num_examples": data.num_examples, "fingerprint": data.fingerprint},
        "begins_with": _begins_with(settings.init_checkpoint),
        "flags": settings.what_training_depends_on(),
    }


def _begins_with(init_checkpoint):
    """SHA-256 of the index, which holds every tensor's checksum, of the checkpoint a run begins with; None for none."""
    return file_digest(f"{checkpoint_prefix(init_checkpoint)}.index") if init_checkpoint else None


def build_model(source, config, *, seed=0, settings=None, trainable=False):
    """`SiameseBertFlow` of a run's configuration on the encoder of `source`, its own weights not yet loaded.

    Args:
      source: `EncoderSource`.
      config: dictionary as in a run's `config.json`.
      seed: of everything drawn at the start.
      settings: `Settings` that say which losses count, or None to apply the model only.
      trainable: whether the encoder is to be trained.

    Raises:
      UserError: flow, `low_dim` or `max_seq_length` do not fit the encoder.
    """
    encoder = SentenceEncoder(source, config["sentence_embedding_type"], trainable=trainable)
    if encoder.max_seq_length and config["max_seq_length"] > encoder.max_seq_length:
        raise UserError(
            f"--max_seq_length: found {config['max_seq_length']}, expected at most {encoder.max_seq_length}, "
            f"the positions of the encoder {source.bert_hub}"
        )
    encoder.seed_dropout(seed)
    flow = None
    if config["flow"]:
        try:
            flow = Glow(
                GlowConfig.from_dict(config["flow_config"], source="config.json"), encoder.embedding_size, seed=seed
            )
        except ValueError as error:
            raise UserError(f"--flow_model_config: {error}") from error
    return SiameseBertFlow(
        encoder,
        flow,
        embedding_size=encoder.embedding_size,
        num_labels=config["num_labels"],
        low_dim=config["low_dim"],
        num_examples=settings.num_examples if settings else -1,
        l2_penalty=settings.l2_penalty if settings else -1.0,
        flow_loss=bool(settings and settings.flow_loss),
        seed=seed,
    )


def checkpoint_of(model, with_encoder):
    """Keywords of a `tf.train.Checkpoint` of what a model learned: flow, classifier and, where trained, encoder."""
    parts = {}
    if model.flow is not None:
        parts["flow"] = model.flow
    if model.output_weights is not None:
        parts["output_weights"] = model.output_weights
    if with_encoder:
        parts["encoder"] = model.encoder.variables_by_name
    return parts


def restore(model, checkpoint, with_encoder):
    """Gives the model what the run's checkpoint with this prefix holds of flow, classifier and trained encoder.

    Raises:
      UserError: the checkpoint cannot be read, or lacks a part of the model.
    """
    parts = checkpoint_of(model, with_encoder)
    if not parts:
        return
    try:
        status = tf.train.Checkpoint(**parts).restore(str(checkpoint))
        status.expect_partial().assert_existing_objects_matched()
    except (ValueError, AssertionError, tf.errors.OpError) as error:
        raise UserError(
            f"{checkpoint}: does not hold the run that config.json describes ({' '.join(str(error).split())})"
        ) from error


def begin_with(model, config, init_checkpoint):
    """Names of the parts, of flow and classifier, that were given the values a checkpoint holds for them.

    The original does so by name, beside the encoder.

    The checkpoint, or the folder that holds it, may be of a run of ours or of the original. The encoder's part of it is
    `resolve_encoder`'s. None are given where `init_checkpoint` is None, or holds neither.

    Raises:
      UserError: the checkpoint's flow or classifier is of another kind or shape.
    """
    if not init_checkpoint:
        return []
    prefix = checkpoint_prefix(init_checkpoint)
    begun = _begin_with_run(model, config, prefix) if is_run_checkpoint(prefix) else assign_tf1_learned(model, prefix)
    if begun:
        logging.info("%s begin with the values in %s", " and ".join(begun), prefix)
    return begun


def _begin_with_run(model, config, prefix):
    old = experiment.read_config(prefix.parent)
    parts = {}
    if model.flow is not None and old["flow"]:
        if old["flow_config"] != config["flow_config"]:
            raise UserError(
                f"--init_checkpoint={prefix}: found a flow of {old['flow_config']}, expected one of "
                f"{config['flow_config']}"
            )
        parts["flow"] = model.flow
    if model.output_weights is not None and old["num_labels"]:
        parts["output_weights"] = model.output_weights
    if parts:
        try:
            status = tf.train.Checkpoint(**parts).restore(str(prefix))
            status.expect_partial().assert_existing_objects_matched()
        except (ValueError, AssertionError, tf.errors.OpError) as error:
            raise UserError(f"--init_checkpoint={prefix}: {' '.join(str(error).split())}") from error
    return list(parts)


def assign_tf1_learned(model, checkpoint):
    """Names of the parts, of flow and classifier, that the original's checkpoint gave the model's their values.

    Raises:
      UserError: a variable of theirs is missing, left over, of another shape, or not finite; it names the variable.
    """
    try:
        reader = tf.train.load_checkpoint(str(checkpoint))
    except (tf.errors.OpError, ValueError) as error:
        raise UserError(f"{checkpoint}: checkpoint cannot be read: {str(error).splitlines()[0]}") from error
    names = reader.get_variable_to_shape_map()
    assigned = []
    if model.flow is not None and any(name.startswith(TF1_FLOW) for name in names):
        try:
            load_tf1_checkpoint(model.flow, str(checkpoint))
        except ValueError as error:
            raise UserError(str(error)) from error
        assigned.append("flow")
    if model.output_weights is not None and TF1_OUTPUT_WEIGHTS in names:
        try:
            value = reader.get_tensor(TF1_OUTPUT_WEIGHTS)
        except (tf.errors.OpError, IndexError) as error:
            raise UserError(f"{checkpoint}: its data file does not fit its index, expected a whole one") from error
        if value.shape != tuple(model.output_weights.shape) or not np.isfinite(value).all():
            raise UserError(
                f"{checkpoint}: {TF1_OUTPUT_WEIGHTS}: found shape {value.shape}, or values that are not finite, "
                f"expected finite ones of shape {tuple(model.output_weights.shape)}"
            )
        model.output_weights.assign(value)
        assigned.append("output_weights")
    return assigned
