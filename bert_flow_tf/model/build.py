"""Build the model of a run: its configuration, the Keras model, and the weights of a checkpoint."""

import os
import pathlib
from typing import Any

import msgspec
import tensorflow as tf
from absl import logging

from bert_flow_tf.data.tasks import Task
from bert_flow_tf.encoder.convert.folders import read_encoder_record
from bert_flow_tf.encoder.convert.from_checkpoint import config_of_checkpoint
from bert_flow_tf.encoder.convert.weights import check_arrays
from bert_flow_tf.encoder.layer import SentenceEncoder, frozen_encoder
from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.errors import ArgumentError
from bert_flow_tf.files.checkpoints import Checkpoint, checkpoint_prefix
from bert_flow_tf.files.reading import file_digest, reading
from bert_flow_tf.model.siamese import SiameseBertFlow
from bert_flow_tf.runs import record
from bert_flow_tf.runs.record import Encoder, Flow, Model, RunConfig, Setting, Training
from bert_flow_tf.runs.settings import LossSettings, Settings, flow_config
from glow.flow import Glow
from glow.tf1_checkpoint import assign_tf1_variables, is_flow_name

# The name of the classifier in the original's checkpoints.
TF1_OUTPUT_WEIGHTS = "loss/output_weights"


def absolute_flags(flags: dict[str, Any]) -> dict[str, Any]:
    """Return arguments of `resolve_encoder` with absolute paths, which hold in any working directory."""

    def is_path(value: Setting) -> bool:
        return isinstance(value, str) and (os.path.exists(value) or os.path.exists(f"{value}.index"))

    return {name: os.path.abspath(str(value)) if is_path(value) else value for name, value in flags.items()}


def encoder_record(source: EncoderSource, flags: dict[str, Setting] | None = None) -> Encoder:
    """Return the record of an encoder; `flags` are `resolve_encoder`'s arguments, None for a handle alone."""
    checkpoint, config_file = (str((flags or {}).get(name) or "") for name in ("init_checkpoint", "bert_config_file"))
    if (initialised := _model_in(checkpoint)) is not None:
        return msgspec.structs.replace(initialised.encoder, fingerprint=source.fingerprint)
    handle = str(pathlib.Path(config_file).resolve().parent) if config_file else source.bert_hub
    # A checkpoint beside its configuration is a published one; nothing is known of the training of others.
    published = not checkpoint or checkpoint_prefix(checkpoint).resolve().parent == pathlib.Path(handle)
    fine_tuning, made = None if published else Training(), read_encoder_record(source.encoder_dir.parent)
    if published and made is not None and made.started_from is not None:
        # `convert --run` or `pretrain` wrote it.
        fine_tuning = made.training or Training()
    name, digest = record.encoder_name(handle, source.preprocess_hub), source.fingerprint
    return Encoder(name=name, handle=handle, fingerprint=digest, weights=digest, fine_tuning=fine_tuning)


def _model_in(checkpoint: str | None) -> Model | None:
    """Return the model in a checkpoint of a bert_flow_tf run; None for any other checkpoint, and for none."""
    prefix = checkpoint_prefix(checkpoint) if checkpoint else None
    config = config_of_checkpoint(prefix) if prefix else None
    return record.model_at(config, prefix) if config and prefix else None


def run_config(
    settings: Settings, task: Task, source: EncoderSource, pairs: int | None = None, data: str | None = None
) -> RunConfig:
    """Return the `config.json` of a run.

    Args:
      pairs: number of pairs that it learns on; None if nothing is trained.
      data: their digest.
    """
    arguments, depends_on = settings.encoder_arguments(), settings.what_training_depends_on()
    begins_with = settings.init_checkpoint

    def learned(earlier: Training | None) -> Training:
        others = {name: value for name, value in depends_on.items() if name not in ("task_name", "seed")}
        return Training(task=task.name, pairs=pairs, settings=others, seed=settings.seed, began_with=earlier)

    flow = None
    if settings.flow:
        training = _flow_training_in(begins_with)
        training = (training or Training(seed=settings.seed)) if pairs is None else learned(training)
        flow = Flow(config=flow_config(settings.flow_model_config), training=training)
    encoder = encoder_record(source, arguments)
    encoder_trained = pairs is not None and not settings.encoder_is_frozen
    if encoder_trained:
        tuning = learned(encoder.fine_tuning)
        encoder = msgspec.structs.replace(encoder, fingerprint=None, weights=None, fine_tuning=tuning)
    return RunConfig(
        made_by=record.made_by("run_siamese"),
        model=Model(
            encoder=encoder,
            pooling=settings.sentence_embedding_type,
            max_seq_length=settings.max_seq_length,
            low_dim=settings.low_dim,
            flow=flow,
        ),
        encoder=source.files,
        encoder_flags=absolute_flags(arguments),
        encoder_trained=encoder_trained,
        num_labels=None if task.is_regression else len(task.label_names),
        data=data,
        # The index holds every tensor's checksum.
        begins_with=file_digest(f"{checkpoint_prefix(begins_with)}.index") if begins_with else None,
        flags=depends_on,
    )


def _flow_training_in(checkpoint: str | None) -> Training | None:
    """Return the training of the flow in a run's first checkpoint; None if it holds no flow."""
    if (initialised := _model_in(checkpoint)) is not None:
        return None if initialised.flow is None else initialised.flow.training
    held = Checkpoint(checkpoint_prefix(checkpoint)).shapes if checkpoint else ()
    return Training() if any(map(is_flow_name, held)) else None


def build_model(
    source: EncoderSource,
    model: Model,
    *,
    num_labels: int | None = None,
    losses: LossSettings | None = None,
    seed: int = 0,
    trainable: bool = False,
) -> SiameseBertFlow:
    """Return the Keras model of a record on the encoder of `source`, before its own weights are loaded.

    Args:
      num_labels: classes of the classifier; None for no classifier.
      losses: None for a model that is only applied.
      trainable: True if the encoder is to be trained.

    Raises:
      UserError: flow, `low_dim` or `max_seq_length` do not fit the encoder.
    """
    if not trainable and model.encoder.fingerprint == source.fingerprint:
        encoder = frozen_encoder(source, model.pooling)
    else:
        # Training, or a checkpoint, changes its variables.
        encoder = SentenceEncoder(source, model.pooling, trainable=trainable)
    length, most = model.max_seq_length, encoder.max_seq_length or model.max_seq_length
    if not 3 <= length <= most:
        raise ArgumentError(f"max_seq_length: found {length}, expected 3 to {most}, the positions of {source.bert_hub}")
    encoder.dropout_seed = seed
    try:
        flow = None if model.flow is None else Glow(model.flow.config, encoder.embedding_size, seed=seed)
    except ValueError as error:
        raise ArgumentError(f"flow_model_config: {error}") from error
    return SiameseBertFlow(encoder, flow, num_labels=num_labels, low_dim=model.low_dim, losses=losses, seed=seed)


def checkpoint_of(model: SiameseBertFlow, with_encoder: bool) -> dict[str, Any]:
    """Return keywords of a `tf.train.Checkpoint` of the flow, the classifier and, if trained, the encoder."""
    encoder = model.encoder.variables_by_name if with_encoder else None
    parts = {"flow": model.flow, "output_weights": model.output_weights, "encoder": encoder}
    return {name: part for name, part in parts.items() if part is not None}


def restore(parts: dict[str, Any], checkpoint: str | os.PathLike) -> None:
    """Restore what `checkpoint_of` names from a run's checkpoint; raise `UserError` if that lacks one of them."""
    if parts:
        with reading(checkpoint, "a checkpoint of the run that config.json describes"):
            status = tf.train.Checkpoint(**parts).restore(str(checkpoint))
            status.expect_partial().assert_existing_objects_matched()


def begin_with(model: SiameseBertFlow, init_checkpoint: str | None) -> list[str]:
    """Initialise flow and classifier from a checkpoint, and return the names of the parts that it held.

    The checkpoint may be of a bert_flow_tf run or of the original; `resolve_encoder` handles its encoder.

    Raises:
      UserError: the checkpoint's flow or classifier is of another kind or shape.
    """
    if not init_checkpoint:
        return []
    prefix = checkpoint_prefix(init_checkpoint)
    run = config_of_checkpoint(prefix)
    if run is None:
        return assign_tf1_learned(model, prefix)
    held, parts = run.model.flow, checkpoint_of(model, with_encoder=False)
    if held is None:
        parts.pop("flow", None)
    elif model.flow is not None and model.flow.config != held.config:
        wanted = model.flow.config.to_dict()
        raise ArgumentError(f"init_checkpoint={prefix}: found a flow of {held.config.to_dict()}, expected {wanted}")
    if not run.num_labels:
        parts.pop("output_weights", None)
    restore(parts, prefix)
    logging.info("%s initialised from %s", " and ".join(parts) or "nothing", prefix)
    return list(parts)


def assign_tf1_learned(model: SiameseBertFlow, checkpoint: str | os.PathLike) -> list[str]:
    """Assign flow and classifier of the original's checkpoint, and return the names of the parts that it held.

    Raises:
      UserError: a variable is missing, unexpected, of another shape, or not finite; the message names the variable.
    """
    held, assigned = Checkpoint(checkpoint), []
    flow_names = [name for name in held.shapes if is_flow_name(name)]
    if model.flow is not None and flow_names:
        with reading(checkpoint, "a checkpoint with the flow of flow_model_config"):
            assign_tf1_variables(model.flow, held.read(flow_names))
        assigned.append("flow")
    if model.output_weights is not None and TF1_OUTPUT_WEIGHTS in held:
        arrays = held.read([TF1_OUTPUT_WEIGHTS])
        check_arrays(arrays, {TF1_OUTPUT_WEIGHTS: model.output_weights.shape}, checkpoint, "the classifier")
        model.output_weights.assign(arrays[TF1_OUTPUT_WEIGHTS])
        assigned.append("output_weights")
    return assigned
