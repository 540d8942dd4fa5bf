"""One run: train, evaluate and predict, as `Settings` say; the checks before it load no TensorFlow."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from absl import logging

from bert_flow_tf.data.tasks import get_task, task_folder
from bert_flow_tf.encoder.handles import check_handle
from bert_flow_tf.encoder.pooling import check_name
from bert_flow_tf.files.checkpoints import checkpoint_prefix
from bert_flow_tf.runs.cluster import Cluster
from bert_flow_tf.runs.folder import owned_run
from bert_flow_tf.runs.settings import Settings, flow_config

if TYPE_CHECKING:
    from bert_flow_tf.model.siamese import SiameseBertFlow
    from bert_flow_tf.training.scoring import Scorer


def check(settings: Settings) -> None:
    """Raise `UserError` for a mistake that can be found without loading TensorFlow."""
    settings.check()
    check_handle(settings.encoder.bert_hub, "bert_hub")
    check_handle(settings.encoder.preprocess_hub, "preprocess_hub")
    task_folder(get_task(settings.data.task_name), settings.data.data_dir)
    check_name(settings.embedding.sentence_embedding_type)
    if settings.flow.flow:
        flow_config(settings.flow.flow_model_config)
    if settings.encoder.init_checkpoint:
        checkpoint_prefix(settings.encoder.init_checkpoint)


def run(settings: Settings, score: "Callable[[Scorer], None] | None" = None) -> None:
    """Train, evaluate and predict; `score` is called with the model at the end.

    Workers that TF_CONFIG names train together; the chief alone evaluates and predicts.

    Raises:
      UserError: a mistake in settings or files.
      FinishedRun: the run is there, of the same settings, and nothing is missing.
    """
    check(settings)
    cluster = Cluster.of_environment()
    if cluster is not None and not cluster.is_chief:
        logging.set_verbosity(logging.WARNING)
        if settings.trains:
            _run(settings, cluster, None)
        return
    with owned_run(settings.output_dir):
        _run(settings, cluster if settings.trains else None, score)


def _run(settings: Settings, cluster: Cluster | None, score: "Callable[[Scorer], None] | None") -> None:
    import tensorflow as tf

    from bert_flow_tf.encoder.source import resolve_encoder
    from bert_flow_tf.training import scoring, train
    from bert_flow_tf.training.devices import configure_devices
    from bert_flow_tf.training.workers import Workers

    output, output_dir = settings.output, settings.output_dir
    task = get_task(settings.data.task_name)
    scoring.check_results(settings, task)
    batch_size = settings.training.train_batch_size if output.do_train else None
    with Workers(cluster, settings.devices.worker_timeout) as workers:
        strategy = configure_devices(settings.devices, settings.training.seed, batch_size, cluster)
        workers.joined(strategy, output_dir)
        if settings.trains:
            source = resolve_encoder(**dataclasses.asdict(settings.encoder))
            cache_dir = (settings.embedding.cached_dir or output_dir) if settings.losses.encoder_is_frozen else None

            def evaluate(model: "SiameseBertFlow") -> dict[str, np.float32]:
                return scoring.evaluate(scoring.Scorer(model, settings.embedding, cache_dir), task, settings)

            model, record, step = train.train(settings, task, source, strategy, evaluate, workers)
            scorer = scoring.Scorer(model, settings.embedding, cache_dir, record)
        elif settings.scores:
            scorer, step = scoring.load_scorer(settings, task, strategy)

        def write_scores() -> None:
            if output.do_eval:
                scoring.write_evaluation(settings, task, scorer, step)
            if output.do_predict:
                predicting, name = scorer, settings.scoring.eval_checkpoint_name
                if name:
                    # A chief predicts alone.
                    alone = strategy if cluster is None else tf.distribute.get_strategy()
                    predicting, _ = scoring.load_scorer(settings, task, alone, name)
                scoring.write_predictions(settings, task, predicting)
            if score is not None:
                score(scorer)

        workers.of_chief(write_scores)
        workers.leave()
    logging.info("*** output_dir ***")
    logging.info("%s", output_dir)
