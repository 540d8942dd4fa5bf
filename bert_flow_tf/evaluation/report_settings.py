"""Which encoder and which flow a result is of, told from the settings that were written with it.

What the settings do not say stays unknown: a comparison that needs it is then not made.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
import re

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.report_records import Record, read_record
from bert_flow_tf.evaluation.report_sources import run_config, stamps_folder
from glow.config import GlowConfig

# Fine-tuning of an encoder before it was used. Only the first is the paper's: 1 epoch of MNLI and SNLI at 2e-5, batches
# of 16 (Li et al. 2020, section 4.1, and the original's README).
NLI, OTHER, UNKNOWN = "NLI", "other", "unknown"
_NLI_FLAGS = {
    "num_train_epochs": 1,
    "learning_rate": 2e-5,
    "train_batch_size": 16,
    "num_examples": -1,
    "max_seq_length": 64,
    "flow": 0,
    "dupe_factor": 1,
    "l2_penalty": -1,
}
_NLI_POOLING = "avg"
# How the paper's flow is learned, on all sentences of the target task (the original's README).
FLOW_TRAINING = {
    "num_examples": 0,
    "num_train_epochs": 1.0,
    "train_batch_size": 32,
    "flow_learning_rate": 1e-3,
    "use_full_for_training": 1,
    "dupe_factor": 1,
    "flow_loss": 1,
    "flow_ddi": False,
}
# Pairs of MNLI's training split and of SNLI, with its dev and test splits or without (961,735 and 942,069), give or
# take those without a label.
_NLI_PAIRS = range(935_000, 965_000)
_UNCASED_PREPROCESS = "bert_en_uncased_preprocess"
_PAPER_ENCODERS = {"base": "uncased_L-12_H-768_A-12", "large": "uncased_L-24_H-1024_A-16"}
_RUN_FLAGS = (
    "num_examples",
    "num_train_epochs",
    "train_batch_size",
    "flow_learning_rate",
    "use_full_for_training",
    "dupe_factor",
    "flow_loss",
    "flow_ddi",
    "l2_penalty",
)


@dataclasses.dataclass(frozen=True)
class Encoder:
    """The encoder of a result.

    Attributes:
      name: "demo", "base" or "large" where it is, or began as, that one; else None.
      handle: what names it: a TF-Hub handle, a name, a folder or a file.
      fingerprint: of weights, graph and vocabulary, as used; None where it is not recorded.
      fine_tuning: None, or one of `NLI`, `OTHER`, `UNKNOWN`.
      weights: key of the weights: the same for two results of one encoder.
    """

    name: str | None
    handle: str
    fingerprint: str | None
    fine_tuning: str | None
    weights: str

    def to_dict(self) -> dict:
        """dict for JSON, without the key."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "weights"}


@dataclasses.dataclass(frozen=True)
class Flow:
    """The flow of a result.

    Attributes:
      config: name of the shipped configuration; None for any other.
      learned_on: the task whose sentences it was learned on; None where it is not recorded.
      flags: the flags of `run_siamese` that its training depends on; None where they are not recorded.
      begun: whether it began with another run's flow.
      pairs: how many it was learned on, one that recurs counted every time; None where it is not recorded.
    """

    config: str | None
    learned_on: str | None
    flags: dict | None
    begun: bool = False
    pairs: int | None = None

    def to_dict(self) -> dict:
        """dict for JSON."""
        return dataclasses.asdict(self)


def encoder_name(handle: str, preprocess_hub: str | None = None) -> str | None:
    """ "demo", "base" or "large" where a handle or a folder's name says so; None for any other.

    Args:
      handle: of the encoder.
      preprocess_hub: handle of its preprocess model where that is one of its own: with another vocabulary, or another
        way to split words, an encoder is another one.
    """
    if preprocess_hub is not None and _UNCASED_PREPROCESS not in preprocess_hub:
        return None
    parts = [part for part in re.split(r"[/\\]", handle) if part and not part.isdigit()]
    last = parts[-1] if parts else ""
    if handle in ("demo", *_PAPER_ENCODERS):
        return handle
    return next((name for name, end in _PAPER_ENCODERS.items() if last in (end, f"bert_en_{end}")), None)


def plain_encoder(encoder: Record) -> Encoder:
    """The `Encoder` of the record of an `EncoderSource`, used as it is."""
    handle, fingerprint = encoder.text("bert_hub"), encoder.text("fingerprint")
    name = encoder_name(handle, encoder.text("preprocess_hub", optional=True))
    return Encoder(name, handle, fingerprint, None, fingerprint)


def encoder_of_run(config: Record, folder: pathlib.Path) -> Encoder:
    """The `Encoder` of a run, with what it learned where the run trained it.

    Args:
      config: the run's `config.json`.
      folder: the run's.

    Raises:
      UserError: a value is missing or of another kind, or the run it began with is broken.
    """
    start = _encoder_at_start(config, folder)
    if not config.flag("encoder_trained"):
        return start
    fine_tuning = NLI if start.fine_tuning is None and _is_paper_nli(config) else OTHER
    return dataclasses.replace(start, fingerprint=None, fine_tuning=fine_tuning, weights=_trained_key(folder))


def _encoder_at_start(config, folder):
    fingerprint = config.part("encoder").text("fingerprint")
    flags = config.part("encoder_flags", optional=True) or Record(config.path, {})
    hub, bert_config, begins = (
        flags.text(name, optional=True) for name in ("bert_hub", "bert_config_file", "init_checkpoint")
    )
    handle = hub or (str(pathlib.Path(bert_config).parent) if bert_config else config.part("encoder").text("bert_hub"))
    name = encoder_name(handle, config.part("encoder").text("preprocess_hub", optional=True))
    encoder = Encoder(name, handle, fingerprint, None, fingerprint)
    earlier = _run_of(begins, folder) if begins else None
    if earlier is not None:
        # Its weights are those of the earlier run: the one key for both.
        return dataclasses.replace(encoder_of_run(*earlier), fingerprint=fingerprint)
    if begins and (hub or pathlib.Path(begins).parent != pathlib.Path(bert_config or "").parent):
        return dataclasses.replace(encoder, fine_tuning=UNKNOWN)
    return encoder


def _run_of(checkpoint, folder):
    """Configuration and folder of the run whose checkpoint it is, also where all runs were moved together."""
    parent = pathlib.Path(checkpoint).parent
    for candidate in (parent, folder.absolute().parent / parent.name):
        config = run_config(candidate)
        if config is not None:
            return config, candidate
    return None


def _trained_key(folder):
    return f"trained in {folder.resolve()}"


def _is_paper_nli(config):
    flags = config.part("flags")
    if config.text("task_name") != "allnli" or not is_all_nli(_learned_pairs(config)):
        return False
    if config.text("sentence_embedding_type") != _NLI_POOLING:
        return False
    return all(flags.number(name) == value for name, value in _NLI_FLAGS.items())


def is_all_nli(pairs: int | None) -> bool:
    """Whether as many pairs can be all of MNLI and SNLI, as the paper's encoders and flows learned on."""
    return pairs in _NLI_PAIRS


def _learned_pairs(config):
    data = config.part("data", optional=True)
    return None if data is None else data.whole("num_examples", optional=True)


def flow_of_run(config: Record) -> Flow | None:
    """The `Flow` of a run; None without one.

    Raises:
      UserError: a value is missing or of another kind.
    """
    if not config.flag("flow"):
        return None
    flags = config.part("flags")
    begins = (config.part("encoder_flags", optional=True) or Record(config.path, {})).text("init_checkpoint", True)
    earlier = _run_of(begins, config.path.parent) if begins else None
    return Flow(
        config=config_name(config),
        learned_on=flags.text("task_name", optional=True),
        # A run that was converted from a checkpoint of the original says nothing of how that was trained.
        flags={name: flags.setting(name) for name in _RUN_FLAGS} if "task_name" in flags else None,
        begun=earlier is not None and bool(earlier[0].flag("flow", optional=True)),
        pairs=_learned_pairs(config),
    )


def seeds_of_run(config: Record) -> list[int]:
    """The seed of a run; none of one that was converted from a checkpoint of the original."""
    seed = config.part("flags").whole("seed", optional=True)
    return [] if seed is None else [seed]


def config_name(record: Record) -> str | None:
    """Name of the shipped flow configuration in `flow_config`; None for any other.

    Raises:
      UserError: it is no flow configuration.
    """
    try:
        config = GlowConfig.from_dict(record.part("flow_config").values, source=f"{record.path}: flow_config")
    except ValueError as error:
        raise UserError(str(error)) from error
    return next((name for name, shipped in _shipped_configs().items() if shipped == config), None)


def model_of_results(model: Record, folder: pathlib.Path | None = None) -> tuple[Encoder, Flow | None, list[int]]:
    """`Encoder`, `Flow` and seeds of what a command calls `model` in its results.

    Args:
      model: `run` (None for an encoder as it is), `encoder`, `flow_config` and more.
      folder: the run's, where it is known; else where its checkpoint was.

    Raises:
      UserError: a value is missing or of another kind.
    """
    run = model.part("run", optional=True)
    if run is None:
        # A saved model says nothing of how its flow was learned.
        has_flow = model.part("flow_config", optional=True) is not None
        return plain_encoder(model.part("encoder")), Flow(config_name(model), None, None) if has_flow else None, []
    folder = folder or pathlib.Path(run.text("checkpoint")).parent
    has_flow = model.part("flow_config", optional=True) is not None
    config = run_config(folder)
    if config is not None and config.part("encoder").text("fingerprint") == model.part("encoder").text("fingerprint"):
        encoder, flow = encoder_of_run(config, folder), flow_of_run(config)
        if (flow is not None) == has_flow:
            return encoder, flow, seeds_of_run(config) if is_random(encoder, flow) else []
    encoder, flow = _recorded_run(model, run, folder, has_flow)
    seed = run.whole("seed", optional=True)
    return encoder, flow, [seed] if seed is not None and is_random(encoder, flow) else []


def _recorded_run(model, run, folder, has_flow):
    """Encoder and flow of a run whose folder is no longer there."""
    encoder = plain_encoder(model.part("encoder"))
    if run.flag("encoder_trained"):
        encoder = dataclasses.replace(encoder, fingerprint=None, fine_tuning=UNKNOWN, weights=_trained_key(folder))
    elif encoder.name is None:
        encoder = dataclasses.replace(encoder, fine_tuning=UNKNOWN)
    if not has_flow:
        return encoder, None
    task = run.text("task_name", optional=True)
    flags = None if task is None else {name: run.setting(name) for name in _RUN_FLAGS}
    return encoder, Flow(
        config_name(model),
        task,
        flags,
        begun=bool(run.flag("flow_begun", optional=True)),
        pairs=run.whole("learned_pairs", optional=True),
    )


def is_random(encoder: Encoder, flow: Flow | None) -> bool:
    """Whether a seed plays a part in what the two give."""
    return flow is not None or encoder.fine_tuning is not None


def encoder_of_stamp(stamp: Record, run: pathlib.Path) -> Encoder:
    """The `Encoder` of an encoder that the recipe scored as it is, from the stamp of that stage.

    A stamp names an encoder by a name, or by digests; a run beside it on the same weights knows more.

    Args:
      stamp: as the recipe keeps it.
      run: the folder of the stage's predictions.

    Raises:
      UserError: a stamp or a run beside it is broken.
    """
    weights = _weights(stamp)
    for path in sorted(stamps_folder(run).glob("*.json")):
        folder = run.absolute().parent / path.stem
        config = run_config(folder)
        if config is None or config.flag("encoder_trained"):
            continue
        if _weights(read_record(path)) == weights:
            return encoder_of_run(config, folder)
    digest = weights.get("NLI fine-tuning")
    handle = weights.get("bert_hub", "")
    key = f"{stamps_folder(run).resolve()}: {json.dumps(weights, sort_keys=True)}"
    if digest is None:
        name = handle if handle in ("demo", *_PAPER_ENCODERS) and len(weights) == 1 else None
        return Encoder(name, handle or "unknown", None, None if name else UNKNOWN, name or key)
    for path in sorted(stamps_folder(run).glob("*.json")):
        settings = read_record(path).part("settings").values
        # As the recipe digests the settings of its first stage.
        if hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest() == digest:
            config = run_config(run.absolute().parent / path.stem)
            if config is not None:
                return encoder_of_run(config, run.absolute().parent / path.stem)
    return Encoder(None, handle or "unknown", None, UNKNOWN, key)


def _weights(stamp):
    """The part of a stamp's settings that names the encoder and its weights."""
    names = ("bert_hub", "preprocess_hub", "bert_config_file", "vocab_file", "init_checkpoint", "NLI fine-tuning")
    settings = stamp.part("settings")
    return {name: settings.text(name) for name in names if name in settings}


@functools.cache
def _shipped_configs():
    return {name: GlowConfig.from_name(name) for name in GlowConfig.names()}
