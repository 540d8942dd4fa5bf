"""The records of a training run in its folder."""

import hashlib
import pathlib
from collections.abc import Iterable

import msgspec
import numpy as np

from bert_flow_tf.common.json_files import CONFIG_FILE, Count, Positive, Seconds, read_json
from bert_flow_tf.common.reading import file_digest
from bert_flow_tf.common.records import EncoderFiles, ModelRecord, Result, Setting


class RunConfig(Result, frozen=True, kw_only=True, tag="run"):
    model: ModelRecord  # the result of the run
    encoder: EncoderFiles  # the encoder that it starts from
    # arguments of `resolve_encoder`, with absolute paths
    encoder_flags: dict[str, bool | str | None] = msgspec.field(default_factory=dict)
    encoder_trained: bool  # True if checkpoints hold the encoder, because the run trains it
    num_labels: Positive | None = None  # the number of classes; None without a classifier
    data: str | None = None  # digest of the training pairs; None if nothing is learned
    begins_with: str | None = None  # digest of the initial checkpoint
    flags: dict[str, Setting]  # settings that training depends on

    @property
    def identity(self) -> dict:
        """The settings by name that a resumed run must share."""
        flow = self.model.flow
        return self.flags | {
            "encoder": self.encoder.fingerprint,
            "data": self.data,
            "init_checkpoint": self.begins_with,
            "flow_config": flow.config.to_dict() if flow and flow.config else None,
            **{f"code of {path}": digest for path, digest in self.model.code.items()},
        }


class StageCost(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of a stage of training, and peak memory at its end."""

    seconds: Seconds
    peak_memory_mib: Count


class TrainingResults(Result, frozen=True, kw_only=True, tag="training"):
    model: ModelRecord  # at the last checkpoint
    steps: Count
    stages: dict[str, StageCost] = msgspec.field(
        default_factory=dict
    )  # "load", "embed" and "train"
    # of masked language modelling, by step, in nats per predicted piece
    dev_losses: dict[Count, float] = msgspec.field(default_factory=dict)


def read_config(run_dir: str | pathlib.Path) -> RunConfig | None:
    """Read the `config.json` of a run's folder; None if it is missing."""
    path = pathlib.Path(run_dir) / CONFIG_FILE
    return read_json(path, RunConfig, expected="a run's configuration") if path.exists() else None


def model_at(config: RunConfig, checkpoint: str | pathlib.Path) -> ModelRecord:
    encoder = config.model.encoder
    if config.encoder_trained:
        # The index has a checksum of every tensor, so its digest identifies the weights.
        encoder = msgspec.structs.replace(encoder, weights=file_digest(f"{checkpoint}.index"))
    return msgspec.structs.replace(config.model, encoder=encoder, checkpoint=str(checkpoint))


def array_digest(arrays: Iterable[np.ndarray]) -> str:
    """Return the SHA-256 of arrays: their types, shapes and values."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
