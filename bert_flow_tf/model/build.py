"""Build the encoder and the calibration that a record describes."""

import msgspec

from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.reading import AnyPath
from bert_flow_tf.common.records import ModelRecord
from bert_flow_tf.encoder.pooling import pooling_code
from glow.config import GlowConfig
from glow.parts import warn_if_changed


def own_code(pooling: str, config: GlowConfig | None) -> dict[str, str]:
    """Return `ModelRecord.code`, the digests of a model's own parts by their paths.

    Raises:
      ArgumentError: another process could not import a part, or it is not imported.
    """
    try:
        return pooling_code(pooling) | ({} if config is None else config.code())
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
        code = own_code(model.pooling, model.flow.config if model.flow else None)
    except ArgumentError as error:
        raise UserError(f"{path}: {error}") from error
    warn_if_changed(model.code, code)
    return msgspec.structs.replace(model, code=code)
