"""Load the model of a run."""

import os
from typing import Any, NamedTuple

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.records import ModelRecord
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.model.build import build_calibration, build_encoder, with_present_code
from bert_flow_tf.original.build import restore
from bert_flow_tf.original.encoder import recorded_encoder
from bert_flow_tf.training.run_folder import TRAIN_RESULTS_FILE, run_checkpoint
from bert_flow_tf.training.run_records import model_at
from glow.calibration import Calibration


class LoadedRun(NamedTuple):
    """The parts of a run's model, without the training."""

    encoder: SentenceEncoder
    calibration: Calibration | None
    source: EncoderSource
    record: ModelRecord
    encoder_trained: bool


def load_run(path: str | os.PathLike) -> LoadedRun:
    """Return the model of a run's last, or named, checkpoint.

    Raises:
      UserError: the checkpoint cannot be read, or the run has not finished.
    """
    checkpoint, config = run_checkpoint(path)
    if not (checkpoint.parent / TRAIN_RESULTS_FILE).is_file():
        raise UserError(
            f"{checkpoint.parent}: training has not finished; rerun the same command to resume"
        )
    model = with_present_code(model_at(config, checkpoint), checkpoint.parent)
    source = recorded_encoder(config)
    encoder = build_encoder(source, model)
    calibration = build_calibration(model, encoder.embedding_size)
    parts: dict[str, Any] = {}
    if calibration is not None:
        parts["flow"] = calibration
    if config.encoder_trained:
        parts["encoder"] = encoder.variables_by_name
    restore(parts, checkpoint)
    return LoadedRun(encoder, calibration, source, model, config.encoder_trained)
