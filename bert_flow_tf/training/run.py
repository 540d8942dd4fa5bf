"""One run: train, evaluate and predict, as `Settings` say; the checks before it load no TensorFlow."""

import contextlib
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from absl import logging

from bert_flow_tf.data.tasks import get_task, task_folder
from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.encoder.pooling import check_pooling
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.checkpoints import checkpoint_prefix
from bert_flow_tf.runs.folder import locked_run
from bert_flow_tf.runs.settings import Cluster, Settings, flow_config

if TYPE_CHECKING:
    from bert_flow_tf.model.siamese import SiameseBertFlow
    from bert_flow_tf.training.scoring import Scorer


class LostWorker(UserError):
    """Another worker of the same training has ended: the same command, run again, resumes."""

    # EX_TEMPFAIL of sysexits.h.
    status = 75


def check(settings: Settings) -> None:
    """Raise `UserError` for a mistake that can be found without loading TensorFlow."""
    settings.check()
    check_handle(settings.encoder.bert_hub, "bert_hub")
    check_handle(settings.encoder.preprocess_hub, "preprocess_hub")
    task_folder(get_task(settings.data.task_name), settings.data.data_dir)
    check_pooling(settings.embedding.sentence_embedding_type)
    if settings.flow.flow:
        flow_config(settings.flow.flow_model_config)
    if settings.encoder.init_checkpoint:
        checkpoint_prefix(settings.encoder.init_checkpoint)


def run(settings: Settings, score: "Callable[[Scorer], None] | None" = None) -> None:
    """Train, evaluate and predict; `score` is called with the model at the end.

    Workers that TF_CONFIG names train together; the chief alone writes, evaluates and predicts.

    Raises:
      UserError: a mistake in settings or files.
      LostWorker: another worker has ended.
      FinishedRun: the run is there, of the same settings, and nothing is missing.
    """
    check(settings)
    cluster = Cluster.of_environment() if settings.trains else Cluster()
    if not cluster.is_chief:
        logging.set_verbosity(logging.WARNING)
    with locked_run(settings.output_dir) if cluster.is_chief else contextlib.nullcontext():
        _run(settings, cluster, score)


def _run(settings: Settings, cluster: Cluster, score: "Callable[[Scorer], None] | None") -> None:
    import tensorflow as tf

    from bert_flow_tf.encoder.source import resolve_encoder
    from bert_flow_tf.training import scoring
    from bert_flow_tf.training.devices import configure_devices, from_chief
    from bert_flow_tf.training.train import train

    output, task = settings.output, get_task(settings.data.task_name)
    scoring.check_results(settings, task)
    batch_size = settings.training.train_batch_size if output.do_train else None
    strategy = configure_devices(settings.devices, settings.training.seed, batch_size, cluster)
    if settings.trains:
        source = resolve_encoder(**dataclasses.asdict(settings.encoder))
        is_frozen = settings.losses.encoder_is_frozen
        cache_dir = (settings.embedding.cached_dir or settings.output_dir) if is_frozen else None

        def evaluate(model: "SiameseBertFlow") -> dict[str, np.float32]:
            return scoring.evaluate(scoring.Scorer(model, settings.embedding, cache_dir), task, settings)

        try:
            model, record, step = train(settings, task, source, strategy, evaluate)
        except tf.errors.OpError as error:
            if cluster.count == 1:
                raise
            raise LostWorker(
                f"worker {cluster.index}: training ended, since another worker has; start all workers again to go on "
                "from the last checkpoint"
            ) from error
        scorer = scoring.Scorer(model, settings.embedding, cache_dir, record)
    elif settings.scores:
        scorer, step = scoring.load_scorer(settings, task, strategy)
    if cluster.is_chief:
        if output.do_eval:
            scoring.write_evaluation(settings, task, scorer, step)
        if output.do_predict:
            predicting, name = scorer, settings.scoring.eval_checkpoint_name
            if name:
                # A chief predicts alone.
                alone = strategy if cluster.count == 1 else tf.distribute.get_strategy()
                predicting, _ = scoring.load_scorer(settings, task, alone, name)
            scoring.write_predictions(settings, task, predicting)
        if score is not None:
            score(scorer)
    # A worker that ends earlier would seem lost.
    from_chief(strategy)
    logging.info("*** output_dir ***\n%s", settings.output_dir)
