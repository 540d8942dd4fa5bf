"""Records of encoders, flows and models in `config.json` and every result."""

import contextlib
import importlib.metadata
import platform
import re

import msgspec

from bert_flow_tf.common.json_files import Count, Positive
from bert_flow_tf.common.version import FORMAT_VERSION, __version__
from glow.config import GlowConfig

Setting = bool | int | float | str | None

# The paper's encoders have these short names and BERT checkpoints.
BERT_NAMES = {"base": "uncased_L-12_H-768_A-12", "large": "uncased_L-24_H-1024_A-16"}
_LIBRARIES = ["numpy", "scipy", "scikit-learn", "tensorflow", "tensorflow-text", "tf-keras"]
_LIBRARIES += ["tensorflow-probability"]
# `Training.settings` has this `objective` after `bert-flow pretrain`.
MASKED_LM = "masked language model"


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """The training of an encoder or flow; None for unknown values."""

    task: str | None = None  # None for a user's own sentences
    # pairs per epoch, counting duplicates; None for a user's own sentences
    pairs: Count | None = None
    # relevant flags of `run_siamese` or arguments of `BertFlow.fit`
    settings: dict[str, Setting] = {}
    seed: Count | None = None
    began_with: "Training | None" = None  # the earlier training of the initial weights, if any


class EncoderRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The encoder of a model; fine-tuning keeps name and handle."""

    name: str | None  # "demo", "base", "large" or None
    handle: str  # TF-Hub handle, name or folder
    # `encoder.source.EncoderSource.fingerprint`; None in a run that trains it
    fingerprint: str | None
    # digest of the weights; None in the `config.json` of a run that trains them
    weights: str | None
    fine_tuning: Training | None = None  # None for an encoder as published


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The claim about a calibration, by pairs or else the witness."""

    claim: str  # "helps", "harms", "no clear change", or "not judged"
    words: str  # the lines that `fit` prints, with figures and what they were measured on

    def __str__(self) -> str:
        return self.words


class CalibrationRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    config: GlowConfig | None  # None for an affine map
    training: Training
    verdict: Verdict | None = None  # None if nothing was measured

    @property
    def method(self) -> str:
        """The `method` of `BertFlow.fit`: "flow", "whitening", …."""
        return str(self.training.settings.get("method", "flow"))

    @property
    def name(self) -> str | None:
        """The name of a shipped configuration; None for other configurations."""
        return next(
            (name for name in GlowConfig.names() if GlowConfig.load(name) == self.config), None
        )


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that embeddings depend on: encoder, pooling and flow."""

    encoder: EncoderRecord
    pooling: str  # `sentence_embedding_type`
    max_seq_length: Positive  # in word pieces; longer sentences are cut
    low_dim: int = -1  # number of channels after averaging neighbours, if positive
    truncate_dim: Positive | None = None  # number of leading channels that are kept; None for all
    flow: CalibrationRecord | None = None
    # of the run; None for an encoder without run, and in a run's own `config.json`
    checkpoint: str | None = None
    # SHA-256 of the code of one's own pooling, coupling and network by their paths, in a file
    code: dict[str, str] = {}

    @property
    def training(self) -> Training | None:
        return self.flow.training if self.flow is not None else self.encoder.fine_tuning


class MadeBy(msgspec.Struct, frozen=True, kw_only=True):
    """The command that wrote a file, and the versions of its libraries."""

    command: str
    libraries: dict[str, str]


class Result(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """The fields that every record begins with; `kind` is the subclass's tag."""

    format_version: int = FORMAT_VERSION
    made_by: MadeBy


class EncoderFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The encoder that a run starts from, see `encoder.source.EncoderSource`."""

    bert_hub: str
    preprocess_hub: str | None
    fingerprint: str
    # of a SavedModel, which is a program; another one is not loaded
    files_digest: str | None = None


def made_by(command: str) -> MadeBy:
    """Return the `MadeBy` of a command, with the installed versions."""
    libraries = {"bert-flow-tf": __version__, "python": platform.python_version()}
    # A library may be missing if it is optional, or if TensorFlow is installed under another name.
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            libraries[name] = importlib.metadata.version(name)
    return MadeBy(command=command, libraries=libraries)


def encoder_name(handle: str, preprocess_handle: str | None = None) -> str | None:
    """Return a handle's short name: "demo", "base", "large" or None.

    An encoder with another preprocess model has no short name, because its word pieces differ.
    """
    if preprocess_handle is not None and "bert_en_uncased_preprocess" not in preprocess_handle:
        return None
    last = re.sub(r"(/\d*)+$", "", handle).rpartition("/")[2].removeprefix("bert_en_")
    return (
        handle
        if handle == "demo"
        else {name: short for short, name in BERT_NAMES.items()}.get(last)
    )
