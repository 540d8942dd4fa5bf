"""Training a run: its data, `fit`, checkpoints, resume."""

import dataclasses
import json
import resource
import sys
import time

import tensorflow as tf
from absl import logging

from bert_flow_tf import callbacks, embedding_cache, experiment, input_pipeline
from bert_flow_tf.atomic import write_atomically
from bert_flow_tf.errors import UserError
from bert_flow_tf.optimization import WarmupLinearDecay
from bert_flow_tf.run_model import begin_with, build_model, checkpoint_of, run_config
from bert_flow_tf.tasks import read_train
from bert_flow_tf.tokenizer import Tokenizer
from glow.optimizer import AdamWeightDecay

CHECKPOINT_NAME = "model.ckpt"
KEEP_CHECKPOINT_MAX = 3


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """What the steps are made of: `pairs` as the original orders them, `num_examples` of them before duplication."""

    pairs: input_pipeline.Pairs
    num_examples: int
    fingerprint: str


def read_training_data(settings, task, tokenizer):
    """`TrainingData` of a task: read, tokenized, labels masked, shuffled and duplicated as the original does."""
    examples = read_train(task, settings.data_dir, bool(settings.use_full_for_training))
    if settings.early_stopping and len(examples) < settings.train_batch_size:
        raise UserError(
            f"--early_stopping: found a --train_batch_size of {settings.train_batch_size}, expected at most the "
            f"{len(examples)} examples of an epoch"
        )
    labels = input_pipeline.scaled_labels(examples, task)
    if settings.num_examples > 0:
        labels = input_pipeline.mask_labels(labels, settings.num_examples, task, settings.seed)
    pairs = input_pipeline.tokenize_pairs(tokenizer, examples, labels, settings.max_seq_length)
    pairs = input_pipeline.permuted(pairs, settings.seed)
    pairs = input_pipeline.duplicated(pairs, settings.dupe_factor, tokenizer.mask_id, settings.seed)
    return TrainingData(pairs, len(examples), input_pipeline.fingerprint(pairs))


def train(settings, task, source, strategy, evaluate):
    """Trains a run, or goes on with an interrupted one, and writes its directory.

    Args:
      settings: `Settings`.
      task: `Task`.
      source: `EncoderSource`.
      strategy: `tf.distribute.Strategy`.
      evaluate: function of the model that gives the dev set's metrics, for early stopping.

    Returns:
      The model and the number of steps done.

    Raises:
      UserError: see `experiment.open_run`; a loss or gradient is not finite.
      KeyboardInterrupt: SIGINT or SIGTERM came; the state is saved.
    """
    stages = _Stages()
    tokenizer = Tokenizer.from_source(source)
    data = read_training_data(settings, task, tokenizer)
    config = run_config(settings, task, source, data)
    total_steps = int(data.num_examples / settings.train_batch_size * settings.num_train_epochs)
    if not total_steps:
        raise UserError(f"--num_train_epochs: found {settings.num_train_epochs}, which is no step at all")
    with strategy.scope():
        model, begun = _compiled_model(settings, source, config, total_steps)
    if settings.flow_ddi and "flow" in begun:
        raise UserError(
            f"--flow_ddi: found true with a flow in --init_checkpoint={settings.init_checkpoint}, expected one of them"
        )
    # Cached embeddings are without dropout; elsewhere every replica draws its own, so their number is part of the run.
    dropout_state = [] if settings.caches_embeddings else model.encoder.dropout_state
    config |= {"replicas": strategy.num_replicas_in_sync if dropout_state else None}
    output_dir = settings.output_dir
    resumed = experiment.open_run(output_dir, config, settings.overwrite, settings.missing_outputs())
    trained = resumed and (output_dir / experiment.TRAIN_RESULTS_FILE).exists()
    step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
    manager = _checkpoint_manager(settings, model, step, dropout_state)
    if resumed and manager.latest_checkpoint:
        manager.checkpoint.restore(manager.latest_checkpoint).assert_consumed()
        logging.info("Resumed from %s", manager.latest_checkpoint)
    if trained:
        return model, int(step)
    stages.end("load")
    features = _features(settings, model, tokenizer, data, stages)
    if int(step) == 0:
        if settings.flow_ddi:
            _initialize_flow(model, features, data, settings)
        if not manager.latest_checkpoint:
            manager.save(checkpoint_number=0)
    logging.info("***** Running training *****")
    logging.info("  Num examples = %d", data.num_examples)
    logging.info("  Batch size = %d on %d replica(s)", settings.train_batch_size, strategy.num_replicas_in_sync)
    logging.info("  Num steps = %d", total_steps)
    last = _fit(settings, model, manager, step, features, data, total_steps, evaluate)
    stages.end("train")
    results = {"steps": int(step), "stages": stages.ended, "replicas": strategy.num_replicas_in_sync, **last}
    write_atomically(output_dir / experiment.TRAIN_RESULTS_FILE, json.dumps(results, indent=2) + "\n")
    return model, int(step)


def _compiled_model(settings, source, config, total_steps):
    """`SiameseBertFlow` with both optimisers, and the names of its parts whose values are those of a checkpoint."""
    model = build_model(source, config, seed=settings.seed, settings=settings, trainable=not settings.encoder_is_frozen)
    begun = begin_with(model, config, settings.init_checkpoint)
    schedule = WarmupLinearDecay(settings.learning_rate, total_steps, int(total_steps * settings.warmup_proportion))
    flow_optimizer = AdamWeightDecay(settings.flow_learning_rate, name="flow_adam") if settings.flow_loss else None
    model.compile(AdamWeightDecay(schedule, name="adam"), flow_optimizer)
    return model, begun


def _checkpoint_manager(settings, model, step, dropout_state):
    """`tf.train.CheckpointManager` of all that a run needs to go on: step, weights, optimisers, dropout."""
    checkpoint = tf.train.Checkpoint(
        step=step,
        optimizer=model.optimizer,
        **({"flow_optimizer": model.flow_optimizer} if model.flow_optimizer else {}),
        **({"dropout": dropout_state} if dropout_state else {}),
        **checkpoint_of(model, with_encoder=not settings.encoder_is_frozen),
    )
    return tf.train.CheckpointManager(
        checkpoint, str(settings.output_dir), max_to_keep=KEEP_CHECKPOINT_MAX, checkpoint_name=CHECKPOINT_NAME
    )


def _features(settings, model, tokenizer, data, stages):
    """Function of pair indices that gives the model's inputs: cached embeddings, or tokens."""
    if not settings.caches_embeddings:
        if not model.encoder.dropout_state:
            logging.warning(
                "%s has no seed for dropout: two runs may differ in the last bits, unless it has no dropout either",
                model.encoder.source.bert_hub,
            )
        return input_pipeline.token_features(
            data.pairs, tokenizer, settings.max_seq_length, settings.pad_to_max_seq_length
        )
    embeddings = embedding_cache.cached_embeddings(
        model.encoder,
        tokenizer,
        data.pairs.pieces,
        settings.max_seq_length,
        cache_dir=settings.cached_dir or settings.output_dir,
        pad_to_max=settings.pad_to_max_seq_length,
    )
    stages.end("embed")
    return input_pipeline.embedding_features(embeddings)


def _fit(settings, model, manager, step, features, data, total_steps, evaluate):
    """Trains up to `total_steps`, or to an earlier end; gives the last step's logs as floats, {} after no step."""
    batches = input_pipeline.training_batches(
        features, data.pairs.labels, batch_size=settings.train_batch_size, seed=settings.seed, skip_steps=int(step)
    )
    steps_per_epoch = data.num_examples // settings.train_batch_size
    saver = callbacks.Saver(
        model, step, manager, steps_per_epoch if settings.early_stopping else settings.save_checkpoints_steps
    )
    summaries = callbacks.Summaries(step, settings.output_dir, settings.log_every_step)
    used = [callbacks.StopIfNotFinite(step, manager), saver, summaries]
    on_terminal = sys.stdout.isatty()
    if not on_terminal:
        used.append(callbacks.LogProgress(step, total_steps))
    if settings.early_stopping:
        early_stopping = callbacks.EarlyStopping(step, steps_per_epoch, evaluate, settings.output_dir)
        used.append(early_stopping)
    if int(step) < total_steps and not (settings.early_stopping and early_stopping.has_stopped(model)):
        with callbacks.StopOnSignal() as stop:
            model.fit(
                _unsharded(batches),
                steps_per_epoch=total_steps - int(step),
                callbacks=[*used, stop],
                verbose=int(on_terminal),
            )
        if saver.saved_at != int(step):
            saver.save()
        if stop.signal:
            logging.warning("Stopped by signal %d at step %d: the same command goes on there", stop.signal, int(step))
            raise KeyboardInterrupt
    return {name: float(value) for name, value in summaries.last.items()}


class _Stages:
    """Seconds of each stage since the one before, and the process' peak of memory at its end."""

    def __init__(self):
        self.ended = {}
        self._since = time.monotonic()

    def end(self, name):
        """Ends the stage of this name."""
        now = time.monotonic()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        self.ended[name] = {"seconds": round(now - self._since, 3), "peak_memory_mib": peak}
        self._since = now


def _unsharded(dataset):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return dataset.with_options(options)


def _initialize_flow(model, features, data, settings):
    """Data-dependent initialisation from the first training batch, both sentences, dropout off."""
    batches = input_pipeline.training_batches(
        features, data.pairs.labels, batch_size=settings.train_batch_size, seed=settings.seed
    )
    inputs, _ = next(iter(batches))
    try:
        model.flow.initialize_from_data(model.embed(inputs, training=False))
    except ValueError as error:
        raise UserError(f"--flow_ddi: {error}") from error
