"""The settings of a run, with the names of the original's flags."""

import dataclasses
import pathlib
from typing import Any, cast

from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.reading import check_local
from bert_flow_tf.common.settings import (
    Settings,
    chosen,
    flag,
    flag_fields,
    flag_not_identifying,
    flow_config,
)
from bert_flow_tf.original.folder import DEV_RESULTS_FILE
from bert_flow_tf.training.run_folder import EVALUATION_FILE
from glow.config import DEFAULT_CONFIG, GlowConfig

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings(Settings):
    """The task, and how its pairs become training pairs."""

    task_name: str = flag(None, f"One of {_TASKS}.", required=True)
    data_dir: str = flag_not_identifying(None, "Folder of the task's files.", required=True)
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
    """Encoder, pooling and flow, as in `records.ModelRecord`."""

    bert_hub: str | None = flag_not_identifying(
        None, "Encoder: demo, base, large, a handle, or a folder of bert-flow convert."
    )
    preprocess_hub: str | None = flag_not_identifying(
        None, "Preprocess model, if --bert_hub does not include one."
    )
    bert_config_file: str | None = flag_not_identifying(
        None, "bert_config.json, with --vocab_file and --init_checkpoint."
    )
    vocab_file: str | None = flag_not_identifying(
        None, "Vocabulary that the BERT model was trained on."
    )
    init_checkpoint: str | None = flag_not_identifying(
        None, "TF1 checkpoint of BERT, or a checkpoint of a bert_flow_tf run."
    )
    do_lower_case: bool | None = flag_not_identifying(
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
    cached_dir: str | None = flag_not_identifying(
        None, "Folder for cached embeddings; by default, the run's directory."
    )
    flow: int = flag(0, "1: apply a flow to the embeddings.", choices=(0, 1))
    # The configuration's contents, not its name, identify the run, see `RunConfig.identity`.
    flow_model_config: str = flag_not_identifying(
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
class LossSettings(Settings):
    """The losses of `original.siamese.SiameseBertFlow`."""

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

    do_train: bool = flag_not_identifying(False, "Train on the training split.")
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
    save_checkpoints_steps: int = flag_not_identifying(
        1000, "Steps between checkpoints; one epoch with --early_stopping.", ge=1
    )
    log_every_step: int = flag_not_identifying(10, "Steps between TensorBoard records.", ge=1)
    start_delay_secs: int = flag_not_identifying(
        120, f"{_WITHOUT_EFFECT}: evaluation runs once, after training."
    )
    throttle_secs: int = flag_not_identifying(
        600, f"{_WITHOUT_EFFECT}: evaluation runs once, after training."
    )
    flow_ddi: bool = flag(
        False, "Initialise the flow from a batch; the original never runs its code for this."
    )
    cache_embeddings: bool = flag(
        False, "Compute the flow's inputs once, without dropout; this is faster."
    )
    use_xla: bool = flag(False, "Compile with XLA.")
    num_logical_cpus: int = flag_not_identifying(
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

    do_eval: bool = flag_not_identifying(False, "Evaluate on dev, to eval_results.txt.")
    do_predict: bool = flag_not_identifying(
        False, "Write the cosines of the test split, to test_results.tsv."
    )
    eval_batch_size: int = flag_not_identifying(
        8, 'Batch size for "loss" in eval_results.txt, a mean of batch means.', ge=1
    )
    auc: bool = flag_not_identifying(
        False, "Evaluate the area under the ROC curve too, for tasks with two labels."
    )
    predict_batch_size: int = flag_not_identifying(
        8, f"{_WITHOUT_EFFECT}: batches hold sentences of similar length.", ge=1
    )
    predict_pool: bool = flag_not_identifying(
        False, "Write embeddings instead of cosines, to test_pooled.tsv."
    )
    do_predict_on_dev: bool = flag_not_identifying(False, "Predict on dev instead of test.")
    do_predict_on_full: bool = flag_not_identifying(False, "Predict on test, dev and train.")
    eval_checkpoint_name: str | None = flag_not_identifying(
        None, "Name of the checkpoint to predict with, if not the latest."
    )
    do_senteval: bool = flag_not_identifying(
        False, f"Score --senteval_tasks; write a run's scores to {EVALUATION_FILE}."
    )
    senteval_tasks: str = flag_not_identifying(
        "", "Comma-separated: STS12 to STS16, MR, CR, SUBJ, MPQA, SST2, TREC, MRPC."
    )
    senteval_dir: str = flag_not_identifying("../SentEval/data", "Folder of SentEval's data.")

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
    losses: LossSettings
    training: TrainingSettings
    scoring: ScoringSettings
    output_parent_dir: str = flag_not_identifying(
        None, "Parent folder of the run's directory.", required=True
    )
    exp_name: str | None = flag_not_identifying(None, "Name of the run's directory.")
    exp_name_prefix: str | None = flag_not_identifying(
        None, "Prefix of the run's directory; the settings make up the rest."
    )
    overwrite: bool = flag_not_identifying(
        False, "Delete a run, or replace results, of the same name."
    )

    @classmethod
    def of(cls, **flags: Any) -> "RunSettings":
        """Make the parts from flags; a wrong name is a `TypeError`."""
        if unknown := flags.keys() - {flag.name for flag in flag_fields(cls)}:
            raise TypeError(f"{min(unknown)} is not a flag")
        parts = {
            part.name: chosen(cast(Any, part.type), flags)
            for part in dataclasses.fields(cls)
            if not part.metadata
        }
        return chosen(cls, flags | parts)

    def __post_init__(self) -> None:
        super().__post_init__()
        training = self.training
        has_flow = self.model.flow
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
        model = self.model
        losses = self.losses
        training = self.training
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
