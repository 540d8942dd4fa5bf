"""Build a run's Keras model; load a checkpoint's weights."""

import logging
import os
from typing import Any

import tensorflow as tf

from bert_flow_tf.common.checkpoints import Checkpoint, checkpoint_prefix
from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.common.reading import reading
from bert_flow_tf.common.records import ModelRecord
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.encoder.weights import check_weights
from bert_flow_tf.original.settings import LossSettings
from bert_flow_tf.original.siamese import SiameseBertFlow
from bert_flow_tf.training.run_folder import config_of_checkpoint
from bert_flow_tf.vectors.batches import check_max_seq_length
from glow.flow import Glow
from glow.tf1_checkpoint import assign_tf1_variables, is_flow_name

logger = logging.getLogger(__name__)

# The original's checkpoints store the classifier under this name.
TF1_OUTPUT_WEIGHTS = "loss/output_weights"


def build_encoder(
    source: EncoderSource, model: ModelRecord, *, trainable: bool = False
) -> SentenceEncoder:
    """Return the encoder of a record, with its pooling.

    Raises:
      ArgumentError: the encoder has fewer positions than `model.max_seq_length`.
    """
    encoder = SentenceEncoder(source, model.pooling, trainable=trainable)
    check_max_seq_length(model.max_seq_length, encoder.max_seq_length)
    return encoder


def build_flow(model: ModelRecord, event_size: int, *, seed: int = 0) -> Glow | None:
    """Return a new flow of a record, or None."""
    if model.flow is None or model.flow.config is None:
        return None
    try:
        return Glow(model.flow.config, event_size, seed=seed)
    except ValueError as error:
        raise ArgumentError(f"flow_model_config: {error}") from error


def build_model(
    source: EncoderSource,
    model: ModelRecord,
    *,
    num_labels: int | None = None,
    losses: LossSettings | None = None,
    seed: int = 0,
    trainable: bool = False,
) -> SiameseBertFlow:
    """Build the Keras model that a record describes, with a new flow.

    Args:
      num_labels: number of the classifier's classes; None for no classifier.
      losses: settings of training; None if the model will not be trained.
      trainable: True if the encoder will be trained.
    """
    encoder = build_encoder(source, model, trainable=trainable)
    flow = build_flow(model, encoder.embedding_size, seed=seed)
    return SiameseBertFlow(
        encoder,
        flow,
        num_labels=num_labels,
        low_dim=model.low_dim,
        losses=losses,
        seed=seed,
    )


def checkpoint_parts(model: SiameseBertFlow, with_encoder: bool) -> dict[str, Any]:
    """Return the trained parts as arguments of `tf.train.Checkpoint`."""
    encoder = model.encoder.variables_by_name if with_encoder else None
    parts = {"flow": model.flow, "output_weights": model.output_weights, "encoder": encoder}
    return {name: part for name, part in parts.items() if part is not None}


def restore(parts: dict[str, Any], checkpoint: str | os.PathLike) -> None:
    """Restore the parts of `checkpoint_parts` from a run's checkpoint."""
    if parts:
        with reading(checkpoint, "a checkpoint of the run that config.json describes"):
            status = tf.train.Checkpoint(**parts).restore(str(checkpoint))
            status.expect_partial().assert_existing_objects_matched()


def load_init_checkpoint(model: SiameseBertFlow, init_checkpoint: str | None) -> list[str]:
    """Initialise flow and classifier from a checkpoint; return the parts' names.

    The checkpoint comes from a run or from the original. `resolve_encoder` loads its encoder.

    Raises:
      UserError: the checkpoint's flow or classifier has another architecture or shape.
    """
    if not init_checkpoint:
        return []
    prefix = checkpoint_prefix(init_checkpoint)
    run = config_of_checkpoint(prefix)
    if run is None:
        return assign_tf1_parts(model, prefix)
    flow = run.model.flow
    parts = checkpoint_parts(model, with_encoder=False)
    if flow is None:
        parts.pop("flow", None)
    elif model.flow is not None and model.flow.config != flow.config:
        found, expected = (
            config and config.to_dict() for config in (flow.config, model.flow.config)
        )
        raise ArgumentError(
            f"init_checkpoint={prefix}: found a flow of {found}, expected {expected}"
        )
    if not run.num_labels:
        parts.pop("output_weights", None)
    restore(parts, prefix)
    logger.info("%s initialised from %s", " and ".join(parts) or "nothing", prefix)
    return list(parts)


def assign_tf1_parts(model: SiameseBertFlow, checkpoint: str | os.PathLike) -> list[str]:
    """Assign flow and classifier from the original's checkpoint; return their names."""
    stored = Checkpoint(checkpoint)
    assigned = []
    flow_names = [name for name in stored.shapes if is_flow_name(name)]
    if model.flow is not None and flow_names:
        with reading(checkpoint, "a checkpoint with the flow of flow_model_config"):
            assign_tf1_variables(model.flow, stored.read(flow_names))
        assigned.append("flow")
    if model.output_weights is not None and TF1_OUTPUT_WEIGHTS in stored.shapes:
        arrays = stored.read([TF1_OUTPUT_WEIGHTS])
        check_weights(
            arrays, {TF1_OUTPUT_WEIGHTS: model.output_weights.shape}, checkpoint, "the classifier"
        )
        model.output_weights.assign(arrays[TF1_OUTPUT_WEIGHTS])
        assigned.append("output_weights")
    return assigned
