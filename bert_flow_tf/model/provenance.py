"""The records of an encoder and of a checkpoint's training."""

import os
import pathlib
from typing import Any

import msgspec

from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.files.checkpoints import Checkpoint, checkpoint_prefix
from bert_flow_tf.runs.folder import config_of_checkpoint
from bert_flow_tf.runs.record import Encoder, Model, Setting, Training, encoder_name, model_at
from glow.tf1_checkpoint import is_flow_name


def absolute_flags(flags: dict[str, Any]) -> dict[str, Any]:
    """Return `resolve_encoder`'s arguments with absolute paths."""

    def is_path(value: Setting) -> bool:
        return isinstance(value, str) and (
            os.path.exists(value) or os.path.exists(f"{value}.index")
        )

    return {
        name: os.path.abspath(str(value)) if is_path(value) else value
        for name, value in flags.items()
    }


def encoder_record(source: EncoderSource, flags: dict[str, Setting] | None = None) -> Encoder:
    """Return an encoder's record; `flags` are arguments of `resolve_encoder`."""
    checkpoint, config_file = (
        str((flags or {}).get(name) or "") for name in ("init_checkpoint", "bert_config_file")
    )
    if (earlier := _recorded_model(checkpoint)) is not None:
        return msgspec.structs.replace(earlier.encoder, fingerprint=source.fingerprint)
    handle = str(pathlib.Path(config_file).resolve().parent) if config_file else source.bert_hub
    # A checkpoint beside its configuration counts as published; the training of other checkpoints
    # is unknown.
    published = not checkpoint or checkpoint_prefix(checkpoint).resolve().parent == pathlib.Path(
        handle
    )
    fine_tuning = None if published else Training()
    if published and source.record.started_from is not None:
        # `convert --run` or `pretrain` wrote the folder.
        fine_tuning = source.record.training or Training()
    name, digest = encoder_name(handle, source.preprocess_hub), source.fingerprint
    return Encoder(
        name=name, handle=handle, fingerprint=digest, weights=digest, fine_tuning=fine_tuning
    )


def _recorded_model(checkpoint: str | None) -> Model | None:
    prefix = checkpoint_prefix(checkpoint) if checkpoint else None
    config = config_of_checkpoint(prefix) if prefix else None
    return model_at(config, prefix) if config and prefix else None


def flow_training(checkpoint: str | None) -> Training | None:
    """Return the training of an initial checkpoint's flow; None without a flow."""
    if (earlier := _recorded_model(checkpoint)) is not None:
        return None if earlier.flow is None else earlier.flow.training
    names = Checkpoint(checkpoint_prefix(checkpoint)).shapes if checkpoint else ()
    return Training() if any(map(is_flow_name, names)) else None
