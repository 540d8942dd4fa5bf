"""Records of models, for a run's `config.json` and every result: encoder, flow, and what these learned on."""

import contextlib
import importlib.metadata
import pathlib
import platform
import re
from typing import Annotated

import msgspec

import bert_flow_tf
from bert_flow_tf.files.json_files import FORMAT_VERSION, read_json
from bert_flow_tf.files.reading import file_digest
from glow.config import GlowConfig

CONFIG_FILE = "config.json"
Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Setting = bool | int | float | str | None

# Short name -> name of the BERT authors' checkpoint, of the encoders that the paper is of.
BERT_NAMES = {"base": "uncased_L-12_H-768_A-12", "large": "uncased_L-24_H-1024_A-16"}
_LIBRARIES = ["numpy", "scipy", "scikit-learn", "tensorflow", "tensorflow-text", "tf-keras"]
_LIBRARIES += ["tensorflow-probability", "rapidfuzz", "wordfreq", "tensorflow-datasets"]
# The `objective` in the settings of a `Training`.
MASKED_LM = "masked language model"


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """The training of an encoder or a flow; without arguments, one of which nothing is recorded."""

    task: str | None = None  # None for one's own sentences.
    pairs: Count | None = None  # Of an epoch, one that recurs counted every time; None for one's own sentences.
    settings: dict[str, Setting] = {}  # Flags of `run_siamese`, or arguments of `BertFlow.fit`, that it depends on.
    seed: Count | None = None  # Of everything random.
    began_with: "Training | None" = None  # What made the weights that it began with; None where it is the first.


class Encoder(msgspec.Struct, frozen=True, kw_only=True):
    """The encoder of a model."""

    name: str | None  # "demo", "base" or "large" where it is, or was fine-tuned from, that one; else None.
    handle: str  # TF-Hub handle, name or folder; of a fine-tuned one, of the encoder that this began with.
    # Digest of weights, graph and vocabulary; None where a run trained it and it was not converted since.
    fingerprint: str | None
    weights: str | None  # Equal for equal weights; None in the `config.json` of a run that is to train them.
    fine_tuning: Training | None = None  # None for an encoder as it was published.


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """The flow of a model."""

    config: GlowConfig
    training: Training

    @property
    def name(self) -> str | None:
        """Name of the shipped configuration; None for any other."""
        return next((name for name in GlowConfig.names() if GlowConfig.from_name(name) == self.config), None)


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """An encoder, a pooling and a flow: all that embeddings depend on."""

    encoder: Encoder
    pooling: str  # `sentence_embedding_type`.
    max_seq_length: Positive  # Word pieces that a sentence is cut to.
    low_dim: int = -1  # Channels that neighbouring ones are averaged to, if positive.
    flow: Flow | None = None
    checkpoint: str | None = None  # Of the run; None for an encoder alone, and in a run's own `config.json`.

    @property
    def training(self) -> Training | None:
        """The last training that the embeddings depend on."""
        return self.flow.training if self.flow is not None else self.encoder.fine_tuning


class MadeBy(msgspec.Struct, frozen=True, kw_only=True):
    """The command that wrote a file, and the versions of what its figures come from."""

    command: str
    libraries: dict[str, str]


class Result(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """The first fields of every record, after a `kind` that is the subclass's tag."""

    format_version: int = FORMAT_VERSION
    made_by: MadeBy


class EncoderFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The files of the encoder that a run begins with: see `encoder.source.EncoderSource`."""

    bert_hub: str
    preprocess_hub: str | None
    fingerprint: str


class RunConfig(Result, frozen=True, kw_only=True, tag="run"):
    """The `config.json` of a run: all that its use takes, and all that decides whether a run is the same."""

    model: Model  # What the run makes.
    encoder: EncoderFiles  # What it begins with.
    encoder_flags: dict[str, bool | str | None] = {}  # Arguments of `resolve_encoder` for it; paths are absolute.
    encoder_trained: bool  # True if checkpoints hold the encoder, which the run trains.
    num_labels: Positive | None = None  # Of the classifier; None without one.
    data: str | None = None  # Digest of the pairs that it learns on; None where it learns nothing.
    begins_with: str | None = None  # Digest of the checkpoint that it begins with.
    flags: dict[str, Setting]  # Settings that training depends on.

    @property
    def identity(self) -> dict:
        """The settings in which a run must agree with one in its folder to be the same, by name."""
        flow = self.model.flow
        return self.flags | {
            "encoder": self.encoder.fingerprint,
            "data": self.data,
            "init_checkpoint": self.begins_with,
            "flow_config": None if flow is None else flow.config.to_dict(),
        }


class StageCost(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds that a stage of training took, and the process's peak of memory at its end."""

    seconds: Seconds
    peak_memory_mib: Count


class TrainingResults(Result, frozen=True, kw_only=True, tag="training"):
    """The `train_results.json` of a finished run."""

    model: Model  # Of the last checkpoint.
    steps: Count
    stages: dict[str, StageCost] = {}  # "load", "embed" and "train".
    dev_losses: dict[Count, float] = {}  # Of masked language modelling, by step: nats for each predicted word piece.


def read_config(run_dir: str | pathlib.Path) -> RunConfig | None:
    """Read the `config.json` of a run's folder; None where there is none.

    Raises:
      UserError: it is not JSON, of another format version, or not a run's.
    """
    path = pathlib.Path(run_dir) / CONFIG_FILE
    return read_json(path, RunConfig, expected="a run's configuration") if path.exists() else None


def is_run(folder: pathlib.Path) -> bool:
    """True if a folder's `config.json` is a run's, of any format version; a `UserError` if it cannot be read."""
    path = folder / CONFIG_FILE
    # A folder of an encoder from Hugging Face has a file of that name as well.
    found = read_json(path, object, expected="a run's configuration", versioned=False) if path.is_file() else None
    return isinstance(found, dict) and "encoder_trained" in found


def model_at(config: RunConfig, checkpoint: str | pathlib.Path) -> Model:
    """Return the model in a run's checkpoint of this prefix."""
    encoder = config.model.encoder
    if config.encoder_trained:
        # The index holds the checksum of every tensor.
        encoder = msgspec.structs.replace(encoder, weights=file_digest(f"{checkpoint}.index"))
    return msgspec.structs.replace(config.model, encoder=encoder, checkpoint=str(checkpoint))


def made_by(command: str) -> MadeBy:
    """Return `MadeBy` of this process, for the results of a command."""
    libraries = {"bert-flow-tf": bert_flow_tf.__version__, "python": platform.python_version()}
    # One may be missing: an extra, or TensorFlow under the name of another build.
    for name in _LIBRARIES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            libraries[name] = importlib.metadata.version(name)
    return MadeBy(command=command, libraries=libraries)


def encoder_name(handle: str, preprocess_handle: str | None = None) -> str | None:
    """ "demo", "base" or "large" where a handle or a folder's name says so; None for any other.

    With another preprocess model, and so other word pieces, an encoder is another one.
    """
    if preprocess_handle is not None and "bert_en_uncased_preprocess" not in preprocess_handle:
        return None
    last = re.sub(r"(/\d*)+$", "", handle).rpartition("/")[2].removeprefix("bert_en_")
    return handle if handle == "demo" else {name: short for short, name in BERT_NAMES.items()}.get(last)
