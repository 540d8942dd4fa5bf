"""Check a run's settings and files before TensorFlow loads, and start it."""

import contextlib
import logging
from collections.abc import Sequence

from bert_flow_tf.common.checkpoints import checkpoint_prefix
from bert_flow_tf.common.errors import ArgumentError, suggest_file
from bert_flow_tf.common.json_files import is_run
from bert_flow_tf.common.settings import flow_config
from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.encoder.pooling import check_pooling
from bert_flow_tf.original.settings import ModelSettings, RunSettings, ScoringSettings
from bert_flow_tf.tasks.pair_files import Task
from bert_flow_tf.tasks.scored_tasks import ScoredTask, splits_as_task
from bert_flow_tf.tasks.tasks import check_task_folder, get_task, read_split
from bert_flow_tf.training.cluster import Cluster
from bert_flow_tf.training.run_folder import locked_run

logger = logging.getLogger(__name__)


def check(settings: RunSettings) -> None:
    """Raise `UserError` for an unknown name or an unreadable file."""
    task = get_task(settings.data.task_name)
    check_model(settings.model)
    check_flow_is_trained(settings)
    check_task_folder(task, settings.data.data_dir)
    check_scoring(settings.scoring, task)
    check_dev_split(settings, task)
    check_prediction_splits(settings, task)


def check_model(model: ModelSettings) -> None:
    """Raise `UserError` for an unknown encoder, pooling, flow or checkpoint."""
    check_handle(model.bert_hub, "bert_hub")
    check_handle(model.preprocess_hub, "preprocess_hub")
    check_pooling(model.sentence_embedding_type)
    if model.flow:
        flow_config(model.flow_model_config)
    if model.init_checkpoint:
        checkpoint_prefix(model.init_checkpoint)


def check_scoring(scoring: ScoringSettings, task: Task) -> None:
    """Raise `ArgumentError` if a task cannot be scored as the flags say."""
    if scoring.do_predict and not task.is_regression:
        raise ArgumentError(
            f"do_predict: found task {task.name}, expected one scored by similarity"
        )
    if scoring.auc and task.metric != "auc":
        raise ArgumentError(f"auc: found task {task.name}, expected one with two labels")


def check_dev_split(settings: RunSettings, task: Task) -> None:
    """Raise `UserError` if the dev set is needed and cannot be used."""
    training = settings.training
    stops_early = training.do_train and training.early_stopping
    if not (settings.scoring.do_eval or stops_early):
        return
    dev = read_split(task, settings.data.data_dir, "dev")
    if stops_early and not dev.has_labels:
        raise ArgumentError(
            f"early_stopping: found task {task.name}, expected one whose dev set has scores"
        )


def check_prediction_splits(settings: RunSettings, task: Task) -> None:
    """Raise `UserError` if a split to predict cannot be read."""
    if settings.scoring.do_predict:
        # Gold scores are read, too: a mistake in them would else show up after hours.
        splits_as_task(task, settings.data.data_dir, settings.scoring.prediction_splits)


def check_flow_is_trained(settings: RunSettings) -> None:
    """Raise `ArgumentError` if the command would score an untrained flow.

    A checkpoint may hold the flow; `original.run` checks that when it is read. With `do_train` and
    hardly any epochs, the original's README scores models as they are.
    """
    if not settings.model.flow or settings.model.init_checkpoint:
        return
    if settings.training.do_train or not settings.scoring.scores:
        return
    if settings.scores_checkpoint_alone:
        expected = "expected a checkpoint with a flow, or --flow=0"
        raise ArgumentError(f"init_checkpoint: missing, {expected}")
    folder = settings.output_dir
    if not is_run(folder) and not any(folder.glob("*.index")):
        expected = "expected a trained one, --init_checkpoint with a flow, or --flow=0"
        raise ArgumentError(f"exp_name: found no run in {folder}, {expected}{suggest_file(folder)}")


def train_and_score(settings: RunSettings, senteval: Sequence[ScoredTask] = ()) -> None:
    """Train, evaluate, predict and score SentEval's tasks.

    The workers in TF_CONFIG train together; only the chief writes, evaluates and predicts.

    Raises:
      UserError: a setting or file is invalid.
      LostWorker: another worker has ended.
      FinishedRun: the run already exists with these settings and all its results.
    """
    check(settings)
    cluster = Cluster.from_environment() if settings.training.trains else Cluster()
    if not cluster.is_chief:
        logging.disable(logging.INFO)
    folder = None if settings.scores_checkpoint_alone else settings.output_dir
    with locked_run(folder) if folder and cluster.is_chief else contextlib.nullcontext():
        from bert_flow_tf.original.run import Run

        run = Run(folder, settings, cluster, senteval)
        scorer = None
        if settings.training.trains:
            scorer = run.train()
        elif settings.scoring.scores:
            scorer = run.load()
        if scorer is not None and cluster.is_chief:
            run.score(scorer)
        # Wait for all workers, because the others would report a worker that ended earlier as lost.
        run.workers.from_chief()
    if folder:
        logger.info("*** output_dir ***\n%s", folder)
