"""The records of an encoder and of a checkpoint's training."""

import os
import pathlib
from typing import Any

import msgspec

from bert_flow_tf.common.checkpoints import Checkpoint, checkpoint_prefix
from bert_flow_tf.common.records import EncoderRecord, ModelRecord, Setting, Training
from bert_flow_tf.encoder.source import EncoderSource, encoder_record
from bert_flow_tf.training.run_folder import config_of_checkpoint
from bert_flow_tf.training.run_records import model_at
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


def run_encoder_record(source: EncoderSource, flags: dict[str, Setting]) -> EncoderRecord:
    """Return the record of a run's encoder; `flags` are arguments of `resolve_run_encoder`."""
    checkpoint = str(flags.get("init_checkpoint") or "")
    config_file = str(flags.get("bert_config_file") or "")
    if (earlier := _recorded_model(checkpoint)) is not None:
        return msgspec.structs.replace(earlier.encoder, fingerprint=source.fingerprint)
    handle = str(pathlib.Path(config_file).resolve().parent) if config_file else source.bert_hub
    record = encoder_record(source, handle)
    # A checkpoint beside its configuration counts as published; the training of other checkpoints
    # is unknown.
    if checkpoint and checkpoint_prefix(checkpoint).resolve().parent != pathlib.Path(handle):
        return msgspec.structs.replace(record, fine_tuning=Training())
    return record


def _recorded_model(checkpoint: str | None) -> ModelRecord | None:
    prefix = checkpoint_prefix(checkpoint) if checkpoint else None
    config = config_of_checkpoint(prefix) if prefix else None
    return model_at(config, prefix) if config and prefix else None


def flow_training(checkpoint: str | None) -> Training | None:
    """Return the training of an initial checkpoint's flow; None without a flow."""
    if (earlier := _recorded_model(checkpoint)) is not None:
        return None if earlier.flow is None else earlier.flow.training
    names = Checkpoint(checkpoint_prefix(checkpoint)).shapes if checkpoint else ()
    return Training() if any(map(is_flow_name, names)) else None
