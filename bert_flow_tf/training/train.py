"""Training a run: its data, `fit`, checkpoints, resume."""

import functools
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging

from bert_flow_tf.data.tasks import Task
from bert_flow_tf.encoder import cache
from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.encoder.stream import SentenceBatcher
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.checkpoints import save_checkpoint, whole_checkpoint
from bert_flow_tf.files.json_files import read_json, write_json
from bert_flow_tf.model.build import begin_with, build_model, checkpoint_of, run_config
from bert_flow_tf.model.siamese import SiameseBertFlow
from bert_flow_tf.runs.folder import CHECKPOINT_NAME, KEEP_CHECKPOINT_MAX, TRAIN_RESULTS_FILE, open_run
from bert_flow_tf.runs.record import (
    LearningCurve,
    Model,
    RunConfig,
    StageCost,
    TrainingData,
    TrainingResults,
    model_at,
)
from bert_flow_tf.runs.settings import Settings
from bert_flow_tf.training import callbacks
from bert_flow_tf.training import pairs as input_pipeline
from bert_flow_tf.training.schedule import WarmupLinearDecay
from bert_flow_tf.training.workers import Workers
from glow.optimizer import AdamWeightDecay


def train(
    settings: Settings,
    task: Task,
    source: EncoderSource,
    strategy: tf.distribute.Strategy,
    evaluate: callbacks.Evaluate,
    workers: Workers | None = None,
) -> tuple[SiameseBertFlow, Model, int]:
    """The model of a run, what results say of it and its number of steps, trained or resumed, its directory written.

    `evaluate` is for early stopping. Of several workers, whose strategy `strategy` is, the chief writes the directory,
    and the others read it.

    Raises:
      UserError: see `open_run`; a loss or gradient is not finite.
      KeyboardInterrupt: SIGINT or SIGTERM came; the state has been saved.
    """
    training, stages, workers = settings.training, Stages(), workers or Workers()
    tokenizer = Tokenizer.from_source(source)
    pairs, num_examples = input_pipeline.read_training_data(settings, task, tokenizer)
    data = TrainingData(num_examples=num_examples, fingerprint=input_pipeline.fingerprint(pairs))
    config = run_config(settings, task, source, data)
    total_steps = int(num_examples / training.train_batch_size * training.num_train_epochs)
    if not total_steps:
        raise ArgumentError(
            f"num_train_epochs: found {training.num_train_epochs}, which gives 0 training steps, expected more"
        )
    with strategy.scope():
        model, begun = _compiled_model(settings, source, config, total_steps)
    if settings.flow.flow_ddi and "flow" in begun:
        raise ArgumentError(
            f"flow_ddi: found true with a flow in --init_checkpoint={settings.encoder.init_checkpoint}, "
            "expected one of them"
        )
    output_dir = settings.output_dir
    if workers.count > 1:
        workers.check_same(config.identity | {"save_checkpoints_steps": training.save_checkpoints_steps})

    def opened() -> int:
        resumed = open_run(output_dir, config, settings.output.overwrite, settings.missing_outputs())
        return resumed + (resumed and (output_dir / TRAIN_RESULTS_FILE).exists())

    opened_as = workers.of_chief(opened)
    resumed, trained = opened_as > 0, opened_as > 1
    step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
    last_checkpoint = None
    if resumed and workers.is_chief:
        last_checkpoint = whole_checkpoint(output_dir, CHECKPOINT_NAME, KEEP_CHECKPOINT_MAX, remove=not trained)
    manager = _checkpoint_manager(settings, model, step)
    if last_checkpoint:
        manager.checkpoint.restore(last_checkpoint).assert_consumed()
        logging.info("Resumed from %s", last_checkpoint)
    if trained and not workers.is_chief:
        return model, config.model, int(step)
    if trained:
        results = read_json(output_dir / TRAIN_RESULTS_FILE, TrainingResults, expected="a finished run's results")
        if last_checkpoint is None or int(step) != results.steps:
            raise UserError(
                f"{output_dir}: found a finished run without its checkpoint of step {results.steps}, expected both "
                "(use --overwrite to train again)"
            )
        if settings.embedding.cache_embeddings:
            # Computed with what is predicted next, as in a run that was not interrupted: an embedding's last bit may
            # depend on the batch that it is in.
            _cached(settings, model, tokenizer, pairs)
        return model, model_at(config, last_checkpoint), int(step)
    stages.end("load")
    stop = callbacks.StopOnSignal(workers)
    batches = _batches(settings, model, tokenizer, pairs, stop, workers)
    if settings.embedding.cache_embeddings:
        stages.end("embed")

    def begun_at() -> int:
        if int(step) == 0:
            if settings.flow.flow_ddi:
                inputs, _ = next(iter(batches(1, 0, input_pipeline.ALL_ROWS)))
                try:
                    model.flow.initialize_from_data(model.embed(inputs, training=False))
                except ValueError as error:
                    raise ArgumentError(f"flow_ddi: {error}") from error
            if not last_checkpoint:
                save_checkpoint(manager, 0)
        return int(step)

    begins_at = workers.of_chief(begun_at)
    if not workers.is_chief:
        manager.checkpoint.restore(str(output_dir / f"{CHECKPOINT_NAME}-{begins_at}")).assert_consumed()
    workers.let_vote(model)
    logging.info("***** Running training *****")
    logging.info("  Num examples = %d", num_examples)
    logging.info("  Batch size = %d on %d replica(s)", training.train_batch_size, strategy.num_replicas_in_sync)
    logging.info("  Num steps = %d", total_steps)
    steps_per_epoch = num_examples // training.train_batch_size
    todo = workers.distributed(batches(total_steps, int(step), workers.rows(training.train_batch_size)))
    curve = _fit(settings, model, manager, step, todo, steps_per_epoch, total_steps, evaluate, stop, workers)
    stages.end("train")
    if not workers.is_chief:
        return model, config.model, int(step)
    record = model_at(config, manager.latest_checkpoint)
    results = TrainingResults(
        made_by=config.made_by,
        model=record,
        data=config.data,
        steps=int(step),
        stages=stages.ended,
        replicas=strategy.num_replicas_in_sync,
        curve=curve,
    )
    write_json(output_dir / TRAIN_RESULTS_FILE, results)
    return model, record, int(step)


def _compiled_model(
    settings: Settings, source: EncoderSource, config: RunConfig, total_steps: int
) -> tuple[SiameseBertFlow, list[str]]:
    """The model with both optimisers, and the names of its parts whose values are those of a checkpoint."""
    training, losses = settings.training, settings.losses
    model = build_model(
        source,
        config.model,
        num_labels=config.num_labels,
        losses=losses,
        seed=training.seed,
        trainable=not losses.encoder_is_frozen,
    )
    begun = begin_with(model, settings.encoder.init_checkpoint)
    schedule = WarmupLinearDecay(training.learning_rate, total_steps, int(total_steps * training.warmup_proportion))
    flow_optimizer = AdamWeightDecay(training.flow_learning_rate, name="flow_adam") if losses.flow_loss else None
    model.compile(AdamWeightDecay(schedule, name="adam"), flow_optimizer)
    return model, begun


def _checkpoint_manager(settings: Settings, model: SiameseBertFlow, step: tf.Variable) -> tf.train.CheckpointManager:
    """Manager of the checkpoints of all that a run needs to resume: step, weights, optimisers."""
    parts = {"step": step, "optimizer": model.optimizer}
    if model.flow_optimizer:
        parts["flow_optimizer"] = model.flow_optimizer
    parts |= checkpoint_of(model, with_encoder=not settings.losses.encoder_is_frozen)
    return tf.train.CheckpointManager(
        tf.train.Checkpoint(**parts),
        str(settings.output_dir),
        max_to_keep=KEEP_CHECKPOINT_MAX,
        checkpoint_name=CHECKPOINT_NAME,
    )


def _batches(
    settings: Settings,
    model: SiameseBertFlow,
    tokenizer: Tokenizer,
    pairs: input_pipeline.Pairs,
    stop: callbacks.StopOnSignal,
    workers: Workers,
) -> Callable[[int, int, slice], tf.data.Dataset]:
    """Function that gives rows of the batches up to a number of steps, after skipping some.

    A signal may end them early, where there are no other workers that wait for them.
    """
    embedding, training, encoder = settings.embedding, settings.training, model.encoder
    max_seq_length, pad_to_max = embedding.max_seq_length, embedding.pad_to_max_seq_length
    order = {"batch_size": training.train_batch_size, "seed": training.seed}
    if settings.losses.encoder_is_frozen and not settings.embedding.cache_embeddings and encoder.numbers_occurrences:
        size = encoder.embedding_size
        batcher = SentenceBatcher(
            functools.partial(encoder, training=True),
            tokenizer,
            shape=[size],
            max_seq_length=max_seq_length,
            pad_to_max=pad_to_max,
            takes_occurrences=True,
        )

        def give_up_on_signal(done: int) -> None:
            workers.has_advanced()
            # All that is computed ahead may take minutes.
            if workers.count == 1 and stop.has_come():
                raise InterruptedError

        def embed(pieces: tf.RaggedTensor, occurrences: np.ndarray) -> np.ndarray:
            return batcher.encode_pieces(pieces, occurrences=occurrences, on_batch=give_up_on_signal)

        return lambda steps, skip_steps, rows: input_pipeline.embedded_batches(
            embed, pairs, size=size, steps=steps, skip_steps=skip_steps, rows=rows, **order
        )
    if settings.embedding.cache_embeddings:
        if workers.count > 1:
            # Who comes later finds the chief's.
            workers.of_chief(lambda: len(_cached(settings, model, tokenizer, pairs)))
        features = input_pipeline.embedding_features(_cached(settings, model, tokenizer, pairs))
    else:
        if not encoder.numbers_occurrences:
            logging.warning(
                "%s has no seed for dropout: two runs may differ in the last bits, unless it has no dropout either",
                encoder.source.bert_hub,
            )
        features = input_pipeline.token_features(pairs, tokenizer, max_seq_length, pad_to_max)
    return lambda steps, skip_steps, rows: input_pipeline.training_batches(
        features, pairs.labels, skip_steps=skip_steps, rows=rows, **order
    )


def _cached(
    settings: Settings, model: SiameseBertFlow, tokenizer: Tokenizer, pairs: input_pipeline.Pairs
) -> np.ndarray:
    """Embeddings [2n, D] of the pairs' sentences without dropout, from the cache or into it."""
    embedding = settings.embedding
    return cache.cached_embeddings(
        model.encoder,
        tokenizer,
        pairs.pieces,
        embedding.max_seq_length,
        cache_dir=embedding.cached_dir or settings.output_dir,
        pad_to_max=embedding.pad_to_max_seq_length,
    )


def _fit(
    settings: Settings,
    model: SiameseBertFlow,
    manager: tf.train.CheckpointManager,
    step: tf.Variable,
    batches: tf.data.Dataset,
    steps_per_epoch: int,
    total_steps: int,
    evaluate: callbacks.Evaluate,
    stop: callbacks.StopOnSignal,
    workers: Workers,
) -> LearningCurve:
    """Trains up to `total_steps`, or to an earlier end; the curve of all its steps."""
    training = settings.training
    save_every = steps_per_epoch if training.early_stopping else training.save_checkpoints_steps
    learned = model.supervised_variables + model.flow_variables
    learned_from = {"supervised_loss": not settings.losses.encoder_is_frozen, "flow_loss": bool(model.flow_variables)}
    names = [name for name, is_learned_from in learned_from.items() if is_learned_from]
    curve = callbacks.Curve(names, step, total_steps, settings.output_dir)

    def before_saving() -> None:
        if workers.is_chief:
            curve.save()

    saver = callbacks.Saver(learned, step, manager, save_every, before_saving, writes=workers.is_chief)
    on_terminal = sys.stdout.isatty() and workers.is_chief
    used: list[tf_keras.callbacks.Callback] = [curve, saver]
    if workers.is_chief:
        used.append(callbacks.Progress(step, total_steps, settings.output_dir, training.log_every_step, on_terminal))
    has_stopped = False
    if training.early_stopping:
        early_stopping = callbacks.EarlyStopping(step, steps_per_epoch, evaluate, settings.output_dir, workers)
        used.append(early_stopping)
        # A run that was killed right after its last checkpoint has not been scored at it.
        has_stopped = early_stopping.stops(model)
    if int(step) < total_steps and not has_stopped:
        with stop:
            steps = total_steps - int(step)
            workers.has_advanced()
            try:
                model.fit(batches, steps_per_epoch=steps, callbacks=[*used, stop], verbose=int(on_terminal))
            except tf.errors.OpError:
                # Where another worker is lost, the step may have been taken in part.
                if not stop.signal or workers.count > 1:
                    raise
            workers.may_take_its_time()
        stop.signal = int(workers.gather(stop.signal).max())
        if saver.saved_at != int(step):
            saver.save()
        if stop.signal:
            logging.warning("Stopped by signal %d at step %d: rerun the same command to resume", stop.signal, int(step))
            workers.leave()
            raise KeyboardInterrupt
    return curve.whole()


class Stages:
    """Seconds of each stage since the one before, and the process' peak of memory at its end."""

    def __init__(self) -> None:
        self.ended: dict[str, StageCost] = {}
        self._since = time.monotonic()

    def end(self, name: str) -> None:
        now = time.monotonic()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        self.ended[name] = StageCost(seconds=round(now - self._since, 3), peak_memory_mib=peak)
        self._since = now
