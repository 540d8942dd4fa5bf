"""Build the encoder and the calibration that a record describes."""

import msgspec

from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.reading import AnyPath
from bert_flow_tf.common.records import WHITENED_FLOW, ModelRecord
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.pooling import check_pooling, pooling_module
from bert_flow_tf.encoder.source import EncoderSource
from glow.calibration import Calibration
from glow.saved import new_calibration


def pooling_code(name: str) -> str | msgspec.UnsetType:
    """Return `ModelRecord.pooling_code` of a pooling."""
    return pooling_module(name) or msgspec.UNSET


def check_recorded_pooling(model: ModelRecord, path: AnyPath) -> None:
    """Raise `UserError` for a pooling whose code was not imported."""
    try:
        check_pooling(model.pooling)
    except ArgumentError as error:
        needed = "the file that registers it"
        advice = "give it to --code"
        if model.pooling_code:
            needed = f"{model.pooling_code}, which registered it"
            advice = f"give --code {model.pooling_code}.py"
        raise UserError(f"{path}: {error}; first import {needed}, or {advice}") from error


def build_encoder(
    source: EncoderSource, model: ModelRecord, *, trainable: bool = False
) -> SentenceEncoder:
    """Return the encoder of a record, with its pooling.

    Raises:
      ArgumentError: the encoder has fewer positions than `model.max_seq_length`.
    """
    encoder = SentenceEncoder(source, model.pooling, trainable=trainable)
    length = model.max_seq_length
    limit = encoder.max_seq_length or length
    if not 3 <= length <= limit:
        raise ArgumentError(
            f"max_seq_length: found {length}, expected 3 to {limit}, the limit of {source.bert_hub}"
        )
    return encoder


def recorded_size(calibration: Calibration) -> int | None:
    """Return what `CalibrationRecord.output_size` says of a calibration."""
    size = calibration.output_size
    return None if size == calibration.event_size else size


def build_calibration(model: ModelRecord, event_size: int, *, seed: int = 0) -> Calibration | None:
    """Return a new calibration of a record, or None."""
    if model.flow is None:
        return None
    try:
        return new_calibration(
            model.flow.config,
            event_size,
            is_whitened=model.flow.method == WHITENED_FLOW,
            output_size=model.flow.output_size,
            seed=seed,
        )
    except ValueError as error:
        raise ArgumentError(f"flow_model_config: {error}") from error
