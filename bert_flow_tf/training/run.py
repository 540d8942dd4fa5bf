"""Run training, evaluation and prediction after checks without TensorFlow."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from absl import logging

from bert_flow_tf.data.tasks import get_task, task_folder
from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.encoder.pooling import check_pooling
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.checkpoints import checkpoint_prefix
from bert_flow_tf.runs.folder import locked_run
from bert_flow_tf.runs.settings import Cluster, Settings, flow_config

if TYPE_CHECKING:
    from bert_flow_tf.training.scoring import Scorer


class LostWorker(UserError):
    """Another worker has ended; repeat the command to resume."""


def check(settings: Settings) -> None:
    """Raise `UserError` for a mistake that needs no TensorFlow to find."""
    settings.check()
    check_handle(settings.bert_hub, "bert_hub")
    check_handle(settings.preprocess_hub, "preprocess_hub")
    task_folder(get_task(settings.task_name), settings.data_dir)
    check_pooling(settings.sentence_embedding_type)
    if settings.flow:
        flow_config(settings.flow_model_config)
    if settings.init_checkpoint:
        checkpoint_prefix(settings.init_checkpoint)


def train_and_score(settings: Settings, score: "Callable[[Scorer], None] | None" = None) -> None:
    """Train, evaluate and predict; call `score` with the model at the end.

    The workers in TF_CONFIG train together; only the chief writes, evaluates and predicts.

    Raises:
      UserError: a setting or file is invalid.
      LostWorker: another worker has ended.
      FinishedRun: the run already exists with these settings and all its results.
    """
    check(settings)
    cluster = Cluster.from_environment() if settings.trains else Cluster()
    if not cluster.is_chief:
        logging.set_verbosity(logging.WARNING)
    has_folder = cluster.is_chief and not settings.scores_checkpoint_alone
    with locked_run(settings.output_dir) if has_folder else contextlib.nullcontext():
        from bert_flow_tf.training.scoring import run_task

        run_task(settings, cluster, score)
