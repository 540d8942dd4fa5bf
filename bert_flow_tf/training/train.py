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
from bert_flow_tf.errors import ArgumentError
from bert_flow_tf.files.checkpoints import save_checkpoint
from bert_flow_tf.files.json_files import write_json
from bert_flow_tf.model.build import begin_with, build_model, checkpoint_of, run_config
from bert_flow_tf.model.siamese import SiameseBertFlow
from bert_flow_tf.runs.folder import CHECKPOINT_NAME, KEEP_CHECKPOINT_MAX, TRAIN_RESULTS_FILE, begin_run, check_run
from bert_flow_tf.runs.record import Model, RunConfig, StageCost, TrainingData, TrainingResults, model_at
from bert_flow_tf.runs.settings import Settings
from bert_flow_tf.training import callbacks
from bert_flow_tf.training import pairs as input_pipeline
from bert_flow_tf.training.devices import cluster_of, from_chief
from bert_flow_tf.training.schedule import WarmupLinearDecay
from glow.optimizer import AdamWeightDecay

# Function of a number of steps, of steps to skip and of rows of each batch that gives the batches.
Batches = Callable[[int, int, slice], tf.data.Dataset]


def train(
    settings: Settings,
    task: Task,
    source: EncoderSource,
    strategy: tf.distribute.Strategy,
    evaluate: callbacks.Evaluate,
) -> tuple[SiameseBertFlow, Model, int]:
    """Train or resume a run; return its model, the model's record and the number of steps.

    Of several workers, whose strategy `strategy` is, the chief writes the run's directory, which all of them see.

    Args:
      evaluate: for early stopping.

    Raises:
      UserError: see `check_run`; a loss or gradient is not finite.
      KeyboardInterrupt: SIGINT or SIGTERM came; the state has been saved.
    """
    training, output_dir, stages, cluster = settings.training, settings.output_dir, Stages(), cluster_of(strategy)
    tokenizer = Tokenizer.from_source(source)
    pairs, num_examples = input_pipeline.read_training_data(settings, task, tokenizer)
    data = TrainingData(num_examples=num_examples, fingerprint=input_pipeline.fingerprint(pairs))
    config = run_config(settings, task, source, data)
    total_steps = int(num_examples / training.train_batch_size * training.num_train_epochs)
    if not total_steps:
        raise ArgumentError(
            f"num_train_epochs: found {training.num_train_epochs}, which gives 0 training steps, expected more"
        )
    resumed = False
    if cluster.is_chief:
        resumed = check_run(output_dir, config, settings.output.overwrite, settings.missing_outputs())
    with strategy.scope():
        model, begun = _compiled_model(settings, source, config, total_steps)
    if settings.flow.flow_ddi and "flow" in begun:
        raise ArgumentError(
            f"flow_ddi: found true with a flow in --init_checkpoint={settings.encoder.init_checkpoint}, "
            "expected one of them"
        )
    parts = {"flow_optimizer": model.flow_optimizer} if model.flow_optimizer else {}
    parts |= checkpoint_of(model, with_encoder=not settings.losses.encoder_is_frozen)
    steps = callbacks.Steps(output_dir, KEEP_CHECKPOINT_MAX, optimizer=model.optimizer, **parts)
    if cluster.is_chief:
        if not resumed:
            begin_run(output_dir, config, settings.output.overwrite)
        last = steps.restore()
        if (output_dir / TRAIN_RESULTS_FILE).exists():
            if settings.embedding.cache_embeddings:
                # Computed with what is predicted next, as in a run that was not interrupted: an embedding's last bit
                # may depend on the batch that it is in.
                _cached(settings, model, tokenizer, pairs)
            from_chief(strategy, -1)
            return model, model_at(config, str(last)), int(steps.step)
    stages.end("load")
    batches = _batches(settings, model, tokenizer, pairs)
    if settings.embedding.cache_embeddings:
        stages.end("embed")
    if cluster.is_chief and not last:
        if settings.flow.flow_ddi:
            inputs, _ = next(iter(batches(1, 0, input_pipeline.ALL_ROWS)))
            try:
                model.flow.initialize_from_data(model.embed(inputs, training=False))
            except ValueError as error:
                raise ArgumentError(f"flow_ddi: {error}") from error
        save_checkpoint(steps.manager, 0)
    begins_at = from_chief(strategy, int(steps.step))
    if not cluster.is_chief:
        if begins_at < 0:
            return model, config.model, 0
        steps.restore(str(output_dir / f"{CHECKPOINT_NAME}-{begins_at}"))
    logging.info(
        "***** Running training *****\n  Num examples = %d\n  Batch size = %d on %d replica(s)\n  Num steps = %d",
        num_examples,
        training.train_batch_size,
        strategy.num_replicas_in_sync,
        total_steps,
    )
    steps_per_epoch = num_examples // training.train_batch_size
    _fit(settings, model, steps, batches, steps_per_epoch, total_steps, evaluate, strategy)
    stages.end("train")
    if not cluster.is_chief:
        return model, config.model, int(steps.step)
    record = model_at(config, steps.manager.latest_checkpoint)
    results = TrainingResults(
        made_by=config.made_by,
        model=record,
        data=config.data,
        steps=int(steps.step),
        stages=stages.ended,
        replicas=strategy.num_replicas_in_sync,
    )
    write_json(output_dir / TRAIN_RESULTS_FILE, results)
    return model, record, int(steps.step)


def _compiled_model(
    settings: Settings, source: EncoderSource, config: RunConfig, total_steps: int
) -> tuple[SiameseBertFlow, list[str]]:
    """Return the model with both optimisers, and the names of its parts that a checkpoint initialised."""
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


def _batches(settings: Settings, model: SiameseBertFlow, tokenizer: Tokenizer, pairs: input_pipeline.Pairs) -> Batches:
    """Return a function that gives rows of the batches up to a number of steps, after skipping some."""
    embedding, training, encoder = settings.embedding, settings.training, model.encoder
    max_seq_length, pad_to_max = embedding.max_seq_length, embedding.pad_to_max_seq_length
    order = {"batch_size": training.train_batch_size, "seed": training.seed}
    if settings.losses.encoder_is_frozen and not embedding.cache_embeddings and encoder.numbers_occurrences:
        batcher = SentenceBatcher(
            functools.partial(encoder, training=True),
            tokenizer,
            shape=[encoder.embedding_size],
            max_seq_length=max_seq_length,
            pad_to_max=pad_to_max,
            takes_occurrences=True,
        )

        def embed(pieces: tf.RaggedTensor, occurrences: np.ndarray) -> np.ndarray:
            return batcher.encode_pieces(pieces, occurrences=occurrences)

        return lambda steps, skip_steps, rows: input_pipeline.embedded_batches(
            embed, pairs, size=encoder.embedding_size, steps=steps, skip_steps=skip_steps, rows=rows, **order
        )
    if embedding.cache_embeddings:
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
    """Return embeddings [2n, D] of the pairs' sentences without dropout, from the cache or into it."""
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
    steps: callbacks.Steps,
    batches: Batches,
    steps_per_epoch: int,
    total_steps: int,
    evaluate: callbacks.Evaluate,
    strategy: tf.distribute.Strategy,
) -> None:
    """Train up to `total_steps`, or to an earlier end."""
    training, output_dir, cluster = settings.training, settings.output_dir, cluster_of(strategy)
    shows_bar = sys.stdout.isatty() and cluster.is_chief
    used: list[tf_keras.callbacks.Callback] = []
    if cluster.is_chief:
        used.append(callbacks.Progress(steps.step, total_steps, output_dir, training.log_every_step, shows_bar))
    if training.early_stopping:
        early = callbacks.EarlyStopping(steps.step, steps_per_epoch, evaluate, output_dir, writes=cluster.is_chief)
        used.append(early)
        # A run that was killed right after its last checkpoint has not been scored at it.
        if early.stops(model):
            return
    begins_at = int(steps.step)
    if begins_at == total_steps:
        return
    todo = batches(total_steps, begins_at, cluster.rows(training.train_batch_size))
    if cluster.count > 1:
        # That the steps end before the data is known. Where it may not be, TensorFlow asks all workers in every step.
        endless = todo.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        todo = strategy.distribute_datasets_from_function(lambda context: endless)
    learned = model.supervised_variables + model.flow_variables
    save_every = steps_per_epoch if training.early_stopping else training.save_checkpoints_steps
    writes = cluster.is_chief
    steps.fit(model, todo, total_steps, learned, save_every=save_every, used=used, writes=writes, shows_bar=shows_bar)


class Stages:
    """Seconds of each stage since the one before, and the process' peak of memory at its end."""

    def __init__(self) -> None:
        self.ended: dict[str, StageCost] = {}
        self._since = time.monotonic()

    def end(self, name: str) -> None:
        """End the stage of this name; the next one begins."""
        now = time.monotonic()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        self.ended[name] = StageCost(seconds=round(now - self._since, 3), peak_memory_mib=peak)
        self._since = now
