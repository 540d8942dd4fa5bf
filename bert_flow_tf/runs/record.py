"""What a run's `config.json` and every result say of their model: encoder, flow, and what these learned on."""

import contextlib
import functools
import importlib.metadata
import pathlib
import platform
import re

import msgspec

import bert_flow_tf
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.files.json_files import FORMAT_VERSION, read_json
from glow.config import GlowConfig

CONFIG_FILE = "config.json"
Setting = bool | int | float | str | None

_UNCASED_PREPROCESS = "bert_en_uncased_preprocess"
# Last part of the handle or folder of the encoders that the paper is of.
_PAPER_ENCODERS = {"base": "uncased_L-12_H-768_A-12", "large": "uncased_L-24_H-1024_A-16"}
_LIBRARIES = (
    "bert-flow-tf",
    "numpy",
    "scipy",
    "scikit-learn",
    "tensorflow",
    "tensorflow-text",
    "tensorflow-probability",
    "tf-keras",
    "rapidfuzz",
    "wordfreq",
    "tensorflow-datasets",
)


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """What an encoder or a flow learned on, and how; without any argument, a training of which nothing is recorded.

    Attributes:
      task: name of the task; None for one's own sentences.
      pairs: number of pairs in an epoch, one that recurs counted every time; None for one's own sentences.
      settings: flags of `run_siamese`, or arguments of `BertFlow.fit`, that the result depends on.
      seed: of everything random.
      began_with: the training that made the weights which this one began with; None where it is the first.
    """

    task: str | None = None
    pairs: int | None = None
    settings: dict[str, Setting] = {}
    seed: int | None = None
    began_with: "Training | None" = None


class Encoder(msgspec.Struct, frozen=True, kw_only=True):
    """The encoder of a model.

    Attributes:
      name: "demo", "base" or "large" where it is, or was fine-tuned from, that one; else None.
      handle: TF-Hub handle, name or folder that names it; of a fine-tuned one, the encoder that this began with.
      preprocess_handle: that of its preprocess model; None where `handle` names both.
      fingerprint: digest of weights, graph and vocabulary; None where a run trained it and it was not converted since.
      weights: key that is equal for equal weights; None in the `config.json` of a run that is to train them.
      fine_tuning: None for an encoder as it was published.
    """

    name: str | None
    handle: str
    preprocess_handle: str | None
    fingerprint: str | None
    weights: str | None
    fine_tuning: Training | None = None


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """The flow of a model.

    Attributes:
      name: of the shipped configuration; None for any other.
      config: its architecture.
      training: what it learned on.
    """

    name: str | None
    config: GlowConfig
    training: Training


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """All that the embeddings of a sentence depend on.

    Attributes:
      encoder: see `Encoder`.
      pooling: `sentence_embedding_type`.
      max_seq_length: word pieces that a sentence is cut to.
      low_dim: number of channels that neighbouring ones are averaged to; None where they are not.
      flow: None without one.
      checkpoint: of the run that the values are from; None for an encoder alone, and in a run's own `config.json`.
    """

    encoder: Encoder
    pooling: str
    max_seq_length: int
    low_dim: int | None = None
    flow: Flow | None = None
    checkpoint: str | None = None

    @property
    def seed(self) -> int | None:
        """The seed that the embeddings depend on; None where nothing was learned, or it is not recorded."""
        training = self.flow.training if self.flow is not None else self.encoder.fine_tuning
        return None if training is None else training.seed


class MadeBy(msgspec.Struct, frozen=True, kw_only=True):
    """The command that wrote a file, the version of bert_flow_tf, and the versions of what figures come from."""

    command: str
    version: str
    libraries: dict[str, str]


class EncoderFiles(msgspec.Struct, frozen=True, kw_only=True):
    """How the encoder that a run begins with is found again: see `encoder.source.EncoderSource`."""

    bert_hub: str
    preprocess_hub: str | None
    do_lower_case: bool
    fingerprint: str


class TrainingData(msgspec.Struct, frozen=True, kw_only=True):
    """Number of pairs that a run learns on, and the digest of these; both None where that is not known."""

    num_examples: int | None = None
    fingerprint: str | None = None


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The `config.json` of a run: all that its use takes, and all that decides whether a run is the same.

    Attributes:
      made_by: what opened the run.
      model: what the run makes.
      encoder: the encoder that it begins with.
      encoder_flags: what `encoder.source.resolve_encoder` was given for it; paths are absolute.
      encoder_trained: whether the run trains the encoder, and so its checkpoints hold it.
      num_labels: of the classifier; None without one.
      task_name: the task it learns on; None where a checkpoint of the original was converted.
      data: what it learns on.
      begins_with: digest of the checkpoint it begins with; None for none.
      replicas: number of these where results depend on it.
      flags: settings that training depends on.
    """

    format_version: int = FORMAT_VERSION
    made_by: MadeBy
    model: Model
    encoder: EncoderFiles
    encoder_flags: dict[str, Setting]
    encoder_trained: bool
    num_labels: int | None = None
    task_name: str | None = None
    data: TrainingData = TrainingData()
    begins_with: str | None = None
    replicas: int | None = None
    flags: dict[str, Setting]

    @property
    def identity(self) -> dict:
        """The settings in which a run must agree with one in its folder to be the same, by name."""
        flow = self.model.flow
        return self.flags | {
            "encoder": self.encoder.fingerprint,
            "data": self.data.fingerprint,
            "replicas": self.replicas,
            "init_checkpoint": self.begins_with,
            "flow_config": None if flow is None else flow.config.to_dict(),
        }


class Result(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every file of results begins with, after a `kind` that is the subclass's tag."""

    format_version: int = FORMAT_VERSION
    made_by: MadeBy


class StageCost(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that a stage of training took, and the process's peak of memory at its end."""

    seconds: float
    peak_memory_mib: int


class TrainingResults(Result, frozen=True, kw_only=True, tag="training"):
    """The `train_results.json` of a finished run.

    Attributes:
      model: of the last checkpoint.
      data: what the run learned on.
      steps: number of them.
      stages: "load", "embed" and "train".
      replicas: number of them; None of a checkpoint of the original.
      losses: of the last step, by name.
      converted_from: name of the original's checkpoint; None of a run that was trained here.
    """

    model: Model
    data: TrainingData = TrainingData()
    steps: int
    stages: dict[str, StageCost] = {}
    replicas: int | None = None
    losses: dict[str, float] = {}
    converted_from: str | None = None


def read_config(run_dir: str | pathlib.Path) -> RunConfig | None:
    """The `config.json` of a run's folder; None where there is none.

    Raises:
      UserError: it is not JSON, of another format version, or not a run's.
    """
    path = pathlib.Path(run_dir) / CONFIG_FILE
    return read_json(path, RunConfig, expected="a run's configuration") if path.exists() else None


def model_at(config: RunConfig, checkpoint: str | pathlib.Path) -> Model:
    """The model that a run's checkpoint holds.

    Args:
      config: of the run.
      checkpoint: prefix of the checkpoint.
    """
    model = msgspec.structs.replace(config.model, checkpoint=str(checkpoint))
    if not config.encoder_trained:
        return model
    # The index holds the checksum of every tensor.
    encoder = msgspec.structs.replace(model.encoder, weights=file_digest(f"{checkpoint}.index"))
    return msgspec.structs.replace(model, encoder=encoder)


def made_by(command: str) -> MadeBy:
    """`MadeBy` of this process, for what the command with this name writes."""
    libraries = {"python": platform.python_version()}
    # One may be missing: an extra, or TensorFlow under the name of another build.
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            libraries[name] = importlib.metadata.version(name)
    return MadeBy(command=command, version=bert_flow_tf.__version__, libraries=libraries)


def encoder_name(handle: str, preprocess_handle: str | None = None) -> str | None:
    """ "demo", "base" or "large" where a handle or a folder's name says so; None for any other.

    Args:
      handle: of the encoder.
      preprocess_handle: of its preprocess model where that is another one: with other word pieces, an encoder is
        another one.
    """
    if preprocess_handle is not None and _UNCASED_PREPROCESS not in preprocess_handle:
        return None
    if handle in ("demo", *_PAPER_ENCODERS):
        return handle
    parts = [part for part in re.split(r"[/\\]", handle) if part and not part.isdigit()]
    last = parts[-1].removeprefix("bert_en_") if parts else ""
    return next((name for name, end in _PAPER_ENCODERS.items() if last == end), None)


def flow_record(config: GlowConfig, training: Training) -> Flow:
    """`Flow` of an architecture and what it learned on."""
    name = next((name for name, shipped in _shipped_configs().items() if shipped == config), None)
    return Flow(name=name, config=config, training=training)


@functools.cache
def _shipped_configs() -> dict[str, GlowConfig]:
    return {name: GlowConfig.from_name(name) for name in GlowConfig.names()}
