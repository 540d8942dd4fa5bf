"""Train or resume a run."""

import functools
import pathlib
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging

from bert_flow_tf.data.tasks import Task
from bert_flow_tf.encoder.cache import cached_embeddings
from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.encoder.stream import dropout_batcher
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.errors import ArgumentError
from bert_flow_tf.files.checkpoints import save_checkpoint
from bert_flow_tf.files.json_files import write_json
from bert_flow_tf.model.build import build_model, checkpoint_parts, load_init_checkpoint, run_config
from bert_flow_tf.model.siamese import SiameseBertFlow
from bert_flow_tf.runs.folder import CHECKPOINT_NAME, KEEP_CHECKPOINT_MAX, TRAIN_RESULTS_FILE, check_run, start_run
from bert_flow_tf.runs.record import Model, RunConfig, StageCost, TrainingResults, model_at
from bert_flow_tf.runs.settings import Cluster, Settings
from bert_flow_tf.training import callbacks
from bert_flow_tf.training import pairs as input_pipeline
from bert_flow_tf.training.devices import from_chief
from bert_flow_tf.training.schedule import WarmupLinearDecay
from glow.optimizer import AdamWeightDecay

# A `Batches` function takes the number of steps, the steps to skip and this worker's rows of each batch.
Batches = Callable[[int, int, slice], tf.data.Dataset]


def train(
    settings: Settings,
    task: Task,
    source: EncoderSource,
    strategy: tf.distribute.Strategy,
    cluster: Cluster,
    dev_score: Callable[[SiameseBertFlow], float],
) -> tuple[SiameseBertFlow, Model, int]:
    """Train or resume a run; return its model, record and steps.

    All workers must be able to read the run's folder, which the chief writes. `dev_score` is for early stopping.

    Raises:
      UserError: see `check_run`; a loss or gradient is not finite.
      KeyboardInterrupt: SIGINT or SIGTERM came; the state has been saved.
    """
    output_dir, stages = settings.output_dir, Stages()
    is_frozen, batch_size = settings.encoder_is_frozen, settings.train_batch_size
    tokenizer = Tokenizer.from_source(source)
    pairs, num_examples = input_pipeline.read_training_data(settings, task, tokenizer)
    config = run_config(settings, task, source, num_examples, input_pipeline.fingerprint(pairs))
    total_steps = int(num_examples / batch_size * settings.num_train_epochs)
    if not total_steps:
        raise ArgumentError(f"num_train_epochs: found {settings.num_train_epochs}, which gives 0 training steps")
    resumed = cluster.is_chief and check_run(output_dir, config, settings.overwrite, settings.missing_outputs())
    with strategy.scope():
        options: dict[str, Any] = {"num_labels": config.num_labels, "losses": settings, "seed": settings.seed}
        model = build_model(source, config.model, **options, trainable=not is_frozen)
        loaded = load_init_checkpoint(model, settings.init_checkpoint)
        schedule = WarmupLinearDecay(settings.learning_rate, total_steps, int(total_steps * settings.warmup_proportion))
        flow_rate = settings.flow_learning_rate
        flow_optimizer = AdamWeightDecay(flow_rate, name="flow_adam") if settings.flow_loss else None
        model.compile(AdamWeightDecay(schedule, name="adam"), flow_optimizer)
    if settings.flow_ddi and "flow" in loaded:
        given = settings.init_checkpoint
        raise ArgumentError(f"flow_ddi: found true with a flow in --init_checkpoint={given}, expected one of them")
    optimizers = {"optimizer": model.optimizer, "flow_optimizer": flow_optimizer}
    parts = checkpoint_parts(model, with_encoder=not is_frozen)
    steps, restored = callbacks.Steps(output_dir, KEEP_CHECKPOINT_MAX, **optimizers, **parts), None
    if cluster.is_chief:
        if not resumed:
            start_run(output_dir, config, settings.overwrite)
        restored = steps.restore()
    stages.end("load")
    is_finished = cluster.is_chief and (output_dir / TRAIN_RESULTS_FILE).exists()
    if from_chief(strategy, cluster, int(is_finished)):
        return model, model_at(config, restored) if restored else config.model, int(steps.step)
    batches = _batches(settings, model, tokenizer, pairs)
    if settings.cache_embeddings:
        stages.end("embed")
    if cluster.is_chief and not restored:
        if settings.flow_ddi:
            # Like the original's hook, embed each pair's first sentence, with dropout, in a batch that training skips.
            inputs, _ = next(iter(batches(1, 0, slice(None))))
            model.flow.initialize_from_data(model.embed(inputs, training=True)[::2])
        save_checkpoint(steps.manager, 0)
    start_step = from_chief(strategy, cluster, int(steps.step))
    if not cluster.is_chief:
        steps.restore(str(output_dir / f"{CHECKPOINT_NAME}-{start_step}"))
    logging.info("***** Running training *****\n  %d examples, %d steps of %d", num_examples, total_steps, batch_size)
    epoch_steps, others = max(1, num_examples // batch_size), list[tf_keras.callbacks.Callback]()
    if cluster.is_chief:
        others.append(callbacks.Progress(steps.step, total_steps, output_dir, settings.log_every_step))
    if settings.early_stopping:
        path, score = output_dir / "early_stopping.json", functools.partial(dev_score, model)
        others.append(callbacks.EarlyStopping(steps.step, epoch_steps, path, score, writes=cluster.is_chief))
    # Check now, because a run may have been killed after its last checkpoint and before its last score.
    if not (settings.early_stopping and others[-1].should_stop()):
        skipped = int(settings.flow_ddi)
        remaining = batches(total_steps + skipped, start_step + skipped, cluster.rows(batch_size))
        if cluster.count > 1:
            # Without a known cardinality, the workers would ask each other for more data in every step.
            endless = remaining.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
            remaining = strategy.distribute_datasets_from_function(lambda context: endless)
        learned = model.supervised_variables + model.flow_variables
        every = epoch_steps if settings.early_stopping else settings.save_checkpoints_steps
        steps.fit(model, remaining, total_steps, learned, save_every=every, others=others, writes=cluster.is_chief)
    stages.end("train")
    if not cluster.is_chief:
        return model, config.model, int(steps.step)
    results = write_results(config, steps, stages, {})
    return model, results.model, results.steps


def _batches(settings: Settings, model: SiameseBertFlow, tokenizer: Tokenizer, pairs: input_pipeline.Pairs) -> Batches:
    """Return the function that makes the batches, see `Batches`."""
    encoder = model.encoder
    length, pad = settings.max_seq_length, settings.pad_to_max_seq_length
    if settings.cache_embeddings:
        folder = settings.cached_dir or settings.output_dir
        cached = cached_embeddings(encoder, tokenizer, pairs.pieces, length, cache_dir=folder, pad_to_max=pad)

        def embed(sentences: np.ndarray, occurrences: np.ndarray) -> np.ndarray:
            return cached[sentences]

    elif settings.encoder_is_frozen and encoder.seeds_dropout:
        batcher = dropout_batcher(encoder, tokenizer, length, seed=settings.seed, pad_to_max=pad)

        def embed(sentences: np.ndarray, occurrences: np.ndarray) -> np.ndarray:
            return batcher.encode_pieces(tf.gather(pairs.pieces, sentences), occurrences=occurrences)

    else:
        return lambda steps, skip, rows: input_pipeline.token_batches(pairs, tokenizer, settings, skip, rows)
    return functools.partial(input_pipeline.embedded_batches, embed, encoder.embedding_size, pairs, settings)


class Stages:
    """Measure wall time and peak memory of each stage."""

    def __init__(self) -> None:
        self.ended: dict[str, StageCost] = {}
        self._since = time.monotonic()

    def end(self, name: str) -> None:
        now = time.monotonic()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        self.ended[name] = StageCost(seconds=round(now - self._since, 3), peak_memory_mib=peak)
        self._since = now


def write_results(
    config: RunConfig, steps: callbacks.Steps, stages: Stages, dev_losses: dict[int, float]
) -> TrainingResults:
    """Write and return a finished run's `train_results.json`."""
    results = TrainingResults(
        made_by=config.made_by,
        model=model_at(config, steps.manager.latest_checkpoint),
        steps=int(steps.step),
        stages=stages.ended,
        dev_losses=dev_losses,
    )
    write_json(pathlib.Path(steps.manager.directory) / TRAIN_RESULTS_FILE, results)
    return results
