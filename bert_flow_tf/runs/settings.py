"""The settings of each action: every flag's type, default, limits and help."""

import dataclasses
import functools
import inspect
import math
import os
import pathlib
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from bert_flow_tf.errors import ArgumentError, UserError, suggest
from bert_flow_tf.files.reading import check_local
from bert_flow_tf.files.sentence_files import BLOCK_ROWS
from bert_flow_tf.runs.folder import DEV_RESULTS_FILE, EVALUATION_FILE
from glow.config import DEFAULT_CONFIG, GlowConfig


def flag(
    default: Any, help: str, *, identifies: bool = True, option: str | None = None, **limits: Any
) -> Any:
    """Return the dataclass field of a flag.

    `identifies` is True if runs with different values are different runs. `option` is the name in
    the shell, if it is another one. `limits` are `choices`, `required`, or arguments of
    `msgspec.Meta`, such as `ge`.
    """
    about = {"help": help, "identifies": identifies, "option": option, "limits": limits}
    return dataclasses.field(default=default, metadata=about)


# The first type of the encoder's matrices is the default.
DTYPES = ("float32", "bfloat16")
Function = TypeVar("Function", bound=Callable[..., Any])
# The trained weights do not depend on these flags.
_neutral = functools.partial(flag, identifies=False)
_WITHOUT_EFFECT = "Accepted but ignored"
_TASKS = (
    "STS-B, SICK-R, STS-12-16, STS-12 to STS-16, MNLI, ALLNLI, QQP, MRPC-regression or "
    "QNLI-regression"
)
_ENCODER_FLAGS = (
    "bert_hub",
    "preprocess_hub",
    "bert_config_file",
    "vocab_file",
    "init_checkpoint",
    "do_lower_case",
)
# A calibration that `BertFlow.fit` can learn.
_METHODS = "flow, whitening[-D], soft-whitening-E, sn, natsv-K or sn+natsv-K"
FIT_METHOD = re.compile(
    r"flow|whitening(-[1-9]\d{0,5})?|soft-whitening-(?![0.]+$)(\d{1,5}\.)?\d{1,9}"
    r"|sn|(sn\+)?natsv-[1-9]\d{0,5}"
)


class Settings:
    """Base of the settings classes, which check their values when made."""

    def __post_init__(self) -> None:
        """Raise `ArgumentError` for the first invalid value."""
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value, limits, expected = (
                getattr(self, field.name),
                dict(field.metadata.get("limits", {})),
                None,
            )
            choices = limits.pop("choices", None)
            if limits.pop("required", False) and not value:
                expected = f"expected a value ({field.metadata['help']})"
            elif isinstance(value, float) and not math.isfinite(value):
                expected = "expected a finite number"
            elif choices and value not in choices:
                known = tuple(map(str, choices))
                expected = f"expected {' or '.join(known)}{suggest(str(value), known)}"
            elif field.metadata and not (
                value is None and type(None) in typing.get_args(field.type)
            ):
                # For `str | None`, the limits belong to str.
                kind = (*typing.get_args(field.type), field.type)[0]
                try:
                    msgspec.convert(value, Annotated[kind, msgspec.Meta(**limits)])
                except msgspec.ValidationError as error:
                    expected = str(error).lower()
            if expected:
                raise ArgumentError(f"{field.name}: found {value or repr(value)}, {expected}")


def chosen(kind: Any, values: Mapping[str, Any]) -> Any:
    """Make settings from values, such as a function's arguments."""
    return kind(
        **{
            field.name: values[field.name]
            for field in dataclasses.fields(kind)
            if field.name in values
        }
    )


def flags_of(kind: Any) -> Iterator[dataclasses.Field]:
    """Yield the fields of a settings class and of its parts."""
    for field in dataclasses.fields(kind):
        yield from [field] if field.metadata else flags_of(field.type)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings(Settings):
    """The task, and how its pairs become training pairs."""

    task_name: str = flag(None, f"One of {_TASKS}.", required=True)
    data_dir: str = _neutral(None, "Folder of the task's files.", required=True)
    use_full_for_training: int = flag(
        0, "1: train on train, dev and test sentences.", choices=(0, 1)
    )
    dupe_factor: int = flag(
        1, "Copies of each example; all but the first mask one random token.", ge=1, lt=1001
    )
    label_min: float = flag(
        0.0, f"{_WITHOUT_EFFECT}, as in the original: the task has its own range."
    )
    label_max: float = flag(
        5.0, f"{_WITHOUT_EFFECT}, as in the original: the task has its own range."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings(Settings):
    """Encoder, pooling and flow, as in `runs.record.Model`."""

    bert_hub: str | None = _neutral(
        None, "Encoder: demo, base, large, a handle, or a folder of bert-flow convert."
    )
    preprocess_hub: str | None = _neutral(
        None, "Preprocess model, if --bert_hub does not include one."
    )
    bert_config_file: str | None = _neutral(
        None, "bert_config.json, with --vocab_file and --init_checkpoint."
    )
    vocab_file: str | None = _neutral(None, "Vocabulary that the BERT model was trained on.")
    init_checkpoint: str | None = _neutral(
        None, "TF1 checkpoint of BERT, or a checkpoint of a bert_flow_tf run."
    )
    do_lower_case: bool | None = _neutral(
        None, "Lower-case the text; by default, the folder's name decides, else the vocabulary."
    )
    sentence_embedding_type: str = flag(
        "avg", "avg, cls, avg-last-N, avg-last-last-N (the original's), or paper-…."
    )
    max_seq_length: int = flag(
        128, "Longest input in word pieces, [CLS] and [SEP] included.", ge=3, lt=2**31
    )
    pad_to_max_seq_length: bool = flag(
        False, "Pad all batches to --max_seq_length, as the original does."
    )
    low_dim: int = flag(-1, "Average neighbouring channels down to this many, if positive.")
    cached_dir: str | None = _neutral(
        None, "Folder for cached embeddings; by default, the run's directory."
    )
    flow: int = flag(0, "1: apply a flow to the embeddings.", choices=(0, 1))
    # The configuration's contents, not its name, identify the run, see `RunConfig.identity`.
    flow_model_config: str = _neutral(
        DEFAULT_CONFIG, "Name of a shipped configuration, or a JSON file."
    )

    @property
    def encoder_arguments(self) -> dict[str, Any]:
        """The arguments of `encoder.source.resolve_encoder`."""
        return {name: getattr(self, name) for name in _ENCODER_FLAGS}

    @property
    def flow_config(self) -> GlowConfig | None:
        """The flow's configuration; None without a flow."""
        return flow_config(self.flow_model_config) if self.flow else None


@dataclasses.dataclass(frozen=True)
class Losses(Settings):
    """The losses of `model.siamese.SiameseBertFlow`."""

    num_examples: int = flag(
        -1, "-1: all labels; 0: no labels, BERT is frozen; n: n labelled examples.", ge=-1
    )
    l2_penalty: float = flag(-1.0, "Weight of the embeddings' norms in the loss, if positive.")
    flow_loss: int = flag(0, "1: learn the flow by its likelihood.", choices=(0, 1))

    @property
    def encoder_is_frozen(self) -> bool:
        """True if the supervised loss is zero: no labels and no penalty.

        Then neither the classifier nor a flow without its own loss changes.
        """
        return self.num_examples == 0 and self.l2_penalty <= 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """Steps, learning rates, checkpoints and devices of training."""

    do_train: bool = _neutral(False, "Train on the training split.")
    seed: int = flag(1234, "Seed of everything random.", ge=0, lt=2**32)
    train_batch_size: int = flag(32, "Pairs per step, over all replicas.", ge=1)
    learning_rate: float = flag(5e-5, "Peak learning rate of BERT and the classifier.", ge=0)
    flow_learning_rate: float = flag(1e-3, "Constant learning rate of the flow.", ge=0)
    num_train_epochs: float = flag(3.0, "Epochs; may be a fraction.", ge=0, lt=1e12)
    warmup_proportion: float = flag(
        0.1, "Share of the steps with a rising learning rate.", ge=0, lt=1
    )
    early_stopping: bool = flag(
        False, "Evaluate every epoch and stop when the dev score no longer rises."
    )
    save_checkpoints_steps: int = _neutral(
        1000, "Steps between checkpoints; one epoch with --early_stopping.", ge=1
    )
    log_every_step: int = _neutral(10, "Steps between TensorBoard records.", ge=1)
    start_delay_secs: int = _neutral(
        120, f"{_WITHOUT_EFFECT}: evaluation runs once, after training."
    )
    throttle_secs: int = _neutral(600, f"{_WITHOUT_EFFECT}: evaluation runs once, after training.")
    flow_ddi: bool = flag(
        False, "Initialise the flow from a batch; the original never runs its code for this."
    )
    cache_embeddings: bool = flag(
        False, "Compute the flow's inputs once, without dropout; this is faster."
    )
    use_xla: bool = flag(False, "Compile with XLA.")
    num_logical_cpus: int = _neutral(
        0, "Replicas on that many virtual CPUs; 0: all GPUs, or one CPU.", ge=0, lt=1025
    )

    @property
    def trains(self) -> bool:
        """True if the command trains for more than 1e-6 epochs."""
        return self.do_train and self.num_train_epochs > 1e-6

    def total_steps(self, num_examples: int) -> int:
        steps = int(num_examples / self.train_batch_size * self.num_train_epochs)
        if not steps:
            raise ArgumentError(
                f"num_train_epochs: found {self.num_train_epochs}, which gives 0 training steps"
            )
        return steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoringSettings(Settings):
    """Evaluation, prediction and SentEval."""

    do_eval: bool = _neutral(False, "Evaluate on dev, to eval_results.txt.")
    do_predict: bool = _neutral(False, "Write the cosines of the test split, to test_results.tsv.")
    eval_batch_size: int = _neutral(
        8, 'Batch size for "loss" in eval_results.txt, a mean of batch means.', ge=1
    )
    auc: bool = _neutral(
        False, "Evaluate the area under the ROC curve too, for tasks with two labels."
    )
    predict_batch_size: int = _neutral(
        8, f"{_WITHOUT_EFFECT}: batches hold sentences of similar length.", ge=1
    )
    predict_pool: bool = _neutral(False, "Write embeddings instead of cosines, to test_pooled.tsv.")
    do_predict_on_dev: bool = _neutral(False, "Predict on dev instead of test.")
    do_predict_on_full: bool = _neutral(False, "Predict on test, dev and train.")
    eval_checkpoint_name: str | None = _neutral(
        None, "Name of the checkpoint to predict with, if not the latest."
    )
    do_senteval: bool = _neutral(
        False, f"Score --senteval_tasks; write a run's scores to {EVALUATION_FILE}."
    )
    senteval_tasks: str = _neutral("", "Comma-separated: STS12 to STS16.")
    senteval_dir: str = _neutral("../SentEval/data", "Folder of SentEval's data.")

    @property
    def scores(self) -> bool:
        return self.do_eval or self.do_predict or self.do_senteval

    @property
    def prediction_splits(self) -> tuple[str, ...]:
        """The splits to predict, in the order of the output file."""
        if self.do_predict_on_full:
            return "test", "dev", "train"
        return ("dev" if self.do_predict_on_dev else "test",)

    @property
    def prediction_file(self) -> str:
        """The name of the file that `do_predict` writes, as in the original."""
        split = "full" if self.do_predict_on_full else self.prediction_splits[0]
        prefix = f"{self.eval_checkpoint_name}." if self.eval_checkpoint_name else ""
        return f"{prefix}{split}_{'pooled' if self.predict_pool else 'results'}.tsv"

    @property
    def files(self) -> list[str]:
        """The names of the files that scoring writes."""
        wanted = {DEV_RESULTS_FILE: self.do_eval, self.prediction_file: self.do_predict}
        return [
            name
            for name, is_wanted in {**wanted, EVALUATION_FILE: self.do_senteval}.items()
            if is_wanted
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings(Settings):
    """The flags of `run_siamese`, with the original's names and defaults."""

    data: DataSettings
    model: ModelSettings
    losses: Losses
    training: TrainingSettings
    scoring: ScoringSettings
    output_parent_dir: str = _neutral(None, "Parent folder of the run's directory.", required=True)
    exp_name: str | None = _neutral(None, "Name of the run's directory.")
    exp_name_prefix: str | None = _neutral(
        None, "Prefix of the run's directory; the settings make up the rest."
    )
    overwrite: bool = _neutral(False, "Delete a run, or replace results, of the same name.")

    @classmethod
    def of(cls, **flags: Any) -> "RunSettings":
        """Make the parts from flags; a wrong name is a `TypeError`."""
        if unknown := flags.keys() - {flag.name for flag in flags_of(cls)}:
            raise TypeError(f"{min(unknown)} is not a flag")
        parts = {
            part.name: chosen(part.type, flags)
            for part in dataclasses.fields(cls)
            if not part.metadata
        }
        return chosen(cls, flags | parts)

    def __post_init__(self) -> None:
        super().__post_init__()
        training, has_flow = self.training, self.model.flow
        check_local(self.output_parent_dir, "--output_parent_dir")
        check_local(self.model.cached_dir or "", "--cached_dir")
        for name, value in {
            "flow_loss": self.losses.flow_loss,
            "flow_ddi": training.flow_ddi,
        }.items():
            if value and not has_flow:
                raise ArgumentError(f"{name}: found {value} with --flow=0, expected --flow=1")
        if training.flow_ddi and training.train_batch_size < 2:
            raise ArgumentError("train_batch_size: found 1 with --flow_ddi, expected 2 or more")
        if training.cache_embeddings and not self.losses.encoder_is_frozen:
            expected = "expected --num_examples=0 and no --l2_penalty"
            raise ArgumentError(
                f"cache_embeddings: found true with an encoder that is trained, {expected}"
            )
        if not (training.do_train or self.scoring.scores):
            raise UserError(
                "--do_train, --do_eval, --do_predict, --do_senteval: all missing, expected at "
                "least one"
            )

    @property
    def training_flags(self) -> dict[str, Any]:
        """The flags that a trained model depends on."""
        parts = (self.data, self.model, self.losses, self.training)
        return {
            flag.name: getattr(part, flag.name)
            for part in parts
            for flag in dataclasses.fields(part)
            if flag.metadata["identifies"]
        }

    @property
    def output_dir(self) -> pathlib.Path:
        """The run's folder, with the original's name."""
        if self.exp_name:
            return pathlib.Path(self.output_parent_dir, self.exp_name)
        if not self.exp_name_prefix:
            raise ArgumentError("exp_name: found nothing, expected --exp_name or --exp_name_prefix")
        model, losses, training = self.model, self.losses, self.training
        parts = {
            f"{self.exp_name_prefix}_t_{self.data.task_name}": True,
            f"ep_{training.num_train_epochs:.2f}_lr_{training.learning_rate:.2e}": True,
            f"bsz_{training.train_batch_size}": training.train_batch_size != 32,
            f"e_{model.sentence_embedding_type}": model.sentence_embedding_type != "avg",
            f"f_{model.flow}{losses.flow_loss}": model.flow,
            f"{training.flow_learning_rate:.2e}": model.flow and losses.flow_loss,
            "allsplits": model.flow and self.data.use_full_for_training,
            pathlib.Path(model.flow_model_config).stem: model.flow
            and model.flow_model_config != DEFAULT_CONFIG,
            "ddi": model.flow and training.flow_ddi,
            f"n_{losses.num_examples}": losses.num_examples > 0,
            f"ld_{model.low_dim}": model.low_dim > -1,
            f"l2_{losses.l2_penalty:.2e}": losses.l2_penalty > 0,
        }
        return pathlib.Path(
            self.output_parent_dir, "_".join(part for part, is_used in parts.items() if is_used)
        )

    @property
    def prediction_path(self) -> pathlib.Path:
        return self.output_dir / self.scoring.prediction_file

    @property
    def scores_checkpoint_alone(self) -> bool:
        """True if SentEval scores `init_checkpoint` without a run."""
        scoring = self.scoring
        scores_a_run = (
            self.training.do_train
            or scoring.do_eval
            or scoring.do_predict
            or not scoring.do_senteval
        )
        is_unnamed = not (self.exp_name or self.exp_name_prefix)
        return not scores_a_run and (is_unnamed or bool(self.model.init_checkpoint))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FitSettings(Settings):
    """The settings of `BertFlow.fit`."""

    method: str = flag("flow", "flow, whitening, …")
    flow_model_config: str = flag(DEFAULT_CONFIG, "Configuration of the flow.")
    epochs: float | None = flag(
        None, "[default: 1, or for 300 steps]", gt=0, option="num_train_epochs"
    )
    batch_size: int = flag(64, "Sentences per step.", ge=1, option="train_batch_size")
    learning_rate: float = flag(1e-3, "Learning rate.", gt=0, option="flow_learning_rate")
    seed: int = flag(1234, "Seed of weights and order.", ge=0, lt=2**32)
    dev_fraction: float = flag(0.05, "Share held out.", ge=0, lt=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not FIT_METHOD.fullmatch(self.method):
            hint = suggest(self.method, ("flow", "whitening", "soft-whitening-0.1"))
            raise ArgumentError(f"method: found {self.method!r}, expected {_METHODS}{hint}")
        flow_config(self.flow_model_config)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardSettings(Settings):
    """The settings of a folder of embeddings, the same for all parts."""

    shard_rows: int = flag(BLOCK_ROWS, "Sentences in each file.", ge=1)
    precision: str = flag("float32", "Stored type.", choices=("float32", "float16"))
    normalize_embeddings: bool = flag(False, "Scale every embedding to norm 1.", option="normalize")
    batch_size: int | None = flag(None, "Sentences per step.  [default: the fastest]", ge=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainSettings(Settings):
    """The settings of masked language modelling.

    Because TF1's Adam does not correct the bias of its moments, its first thousand steps are up to
    six times as large as AdamW's at the same rate.
    """

    steps: int = flag(1000, "Steps; the learning rate decays to 0.", ge=1)
    train_batch_size: int = flag(64, "Sentences per step.", ge=1)
    learning_rate: float = flag(2e-4, "Peak learning rate.", gt=0)
    num_warmup_steps: int = flag(100, "Steps of linear warm-up.", ge=0)
    max_seq_length: int = flag(64, "Word pieces; longer sentences are split.", ge=3)
    masked_lm_prob: float = flag(0.15, "Share of the word pieces to predict.", ge=0.001, lt=1)
    dev_fraction: float = flag(0.01, "Share of sentences to hold out, at most 1000.", ge=0, lt=1)
    save_checkpoints_steps: int = flag(
        100, "Steps between checkpoints, each with a dev loss.", ge=1
    )
    seed: int = flag(1234, "Seed of everything random.", ge=0, lt=2**32)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps <= self.num_warmup_steps:
            expected = f"more than num_warmup_steps, {self.num_warmup_steps}"
            raise ArgumentError(f"steps: found {self.steps}, expected {expected}")


def flow_config(name_or_path: str | os.PathLike) -> GlowConfig:
    """Return a `GlowConfig` by name or file; raise `ArgumentError` if invalid."""
    try:
        return GlowConfig.load(name_or_path)
    except (ValueError, OSError) as error:
        name = os.fspath(name_or_path)
        hint = "" if name.endswith(".json") else suggest(name, GlowConfig.names())
        raise ArgumentError(f"flow_model_config: {error}{hint}") from error


def suggesting_arguments(function: Function) -> Function:
    """Raise `ArgumentError` with a suggestion for an unknown argument."""
    known = inspect.signature(function).parameters
    options = {flag.metadata["option"]: flag.name for flag in flags_of(FitSettings)}

    @functools.wraps(function)
    def checked(*arguments: Any, **given: Any) -> Any:
        for name in given.keys() - known.keys():
            hint = (
                f"; did you mean {options[name]}?"
                if options.get(name) in known
                else suggest(name, known)
            )
            raise ArgumentError(
                f"{name}: found an argument that {function.__name__} does not have{hint}"
            )
        return function(*arguments, **given)

    return typing.cast(Function, checked)
