"""Build the encoder and the calibration that a record describes."""

import msgspec

from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.reading import AnyPath
from bert_flow_tf.common.records import CalibrationRecord, ModelRecord
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.pooling import pooling_code
from bert_flow_tf.encoder.source import EncoderSource
from glow.calibration import Calibration
from glow.parts import warn_if_changed
from glow.saved import new_calibration


def own_code(pooling: str, flow: CalibrationRecord | None) -> dict[str, str]:
    """Return `ModelRecord.code`, the digests of a model's own parts by their paths.

    Raises:
      ArgumentError: another process could not import a part, or it is not imported.
    """
    try:
        return pooling_code(pooling) | (flow.config.code() if flow and flow.config else {})
    except ArgumentError:
        raise
    except ValueError as error:
        raise ArgumentError(f"flow_model_config: {error}") from error


def with_present_code(model: ModelRecord, path: AnyPath) -> ModelRecord:
    """Return a file's record with the digests of the present code.

    Warn of code that has changed, because embeddings may differ.

    Raises:
      UserError: a part's module is not imported.
    """
    try:
        code = own_code(model.pooling, model.flow)
    except ArgumentError as error:
        raise UserError(f"{path}: {error}") from error
    warn_if_changed(model.code, code)
    return msgspec.structs.replace(model, code=code)


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
            is_whitened="+" in model.flow.method and model.flow.config is not None,
            output_size=model.flow.output_size,
            seed=seed,
        )
    except ValueError as error:
        raise ArgumentError(f"flow_model_config: {error}") from error
