"""Training a run: strategy, data, `fit`, checkpoints, resume."""

import dataclasses
import json
import os
import pathlib
import resource
import signal
import sys
import time

import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging

from bert_flow_tf import experiment, input_pipeline
from bert_flow_tf.convert.from_run import is_run_checkpoint
from bert_flow_tf.encoder import SentenceEncoder, resolve_encoder
from bert_flow_tf.errors import UserError
from bert_flow_tf.model import SiameseBertFlow
from bert_flow_tf.optimization import AdamWeightDecay, WarmupLinearDecay
from bert_flow_tf.tasks import read_train
from bert_flow_tf.tokenizer import Tokenizer
from glow.config import GlowConfig
from glow.flow import Glow

CHECKPOINT_NAME = "model.ckpt"
KEEP_CHECKPOINT_MAX = 3


def configure_devices(settings):
    """Strategy over all GPUs, `num_logical_cpus` virtual CPU devices, or the one CPU; sets TensorFlow's seeds.

    To be called once, before TensorFlow has touched a device.

    Raises:
      UserError: the devices exist already in another number.
    """
    gpus = tf.config.list_physical_devices("GPU")
    wanted = settings.num_logical_cpus
    try:
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
        cpu = tf.config.list_physical_devices("CPU")[0]
        if wanted > 1 and len(tf.config.get_logical_device_configuration(cpu) or ()) < wanted:
            tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * wanted)
    except RuntimeError as error:
        raise UserError(f"--num_logical_cpus: found {wanted} after devices were in use ({error})") from error
    tf.config.optimizer.set_jit(bool(settings.use_xla))
    tf_keras.utils.set_random_seed(settings.seed)
    devices = [f"/gpu:{i}" for i in range(len(gpus))] or ["/cpu:0"]
    if wanted:
        devices = [f"/cpu:{i}" for i in range(wanted)]
    replicas = len(devices)
    if settings.do_train and settings.train_batch_size % replicas:
        raise UserError(
            f"--train_batch_size: found {settings.train_batch_size}, expected a multiple of the {replicas} replicas"
        )
    # On CPUs TensorFlow's collective operations tie a process to the first number of replicas that it trains on.
    on_cpus = wanted > 1
    return tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice() if on_cpus else None)


def flow_config(name_or_path):
    """`GlowConfig` of a shipped configuration's name or a file's path; a mistake in it becomes a `UserError`."""
    try:
        return GlowConfig.load(name_or_path)
    except (ValueError, OSError) as error:
        raise UserError(f"--flow_model_config: {error}") from error


def _is_local(value):
    return os.path.exists(value) or os.path.exists(f"{value}.index")


def encoder_flags(settings):
    """The flags that name the encoder, as `resolve_encoder` takes them."""
    names = ("bert_hub", "preprocess_hub", "bert_config_file", "vocab_file", "init_checkpoint", "do_lower_case")
    return {name: getattr(settings, name) for name in names}


def recorded_encoder(config):
    """`EncoderSource` of the encoder that a run of this configuration started from.

    A converted encoder that is no longer in the cache is made again from what the run's flags named.

    Args:
      config: dictionary as in a run's `config.json`.

    Raises:
      UserError: the encoder cannot be found, or is another one by its fingerprint.
    """
    recorded = config["encoder"]
    if os.path.isabs(recorded["bert_hub"]) and not os.path.isdir(recorded["bert_hub"]):
        source = resolve_encoder(**config["encoder_flags"])
    else:
        source = resolve_encoder(bert_hub=recorded["bert_hub"], preprocess_hub=recorded["preprocess_hub"])
    if source.fingerprint != recorded["fingerprint"]:
        raise UserError(
            f"{source.bert_hub}: found an encoder with fingerprint {source.fingerprint}, expected the run's, "
            f"{recorded['fingerprint']}"
        )
    return source


def build_model(source, config, *, seed=0, settings=None, trainable=False):
    """`SiameseBertFlow` of a run's configuration on the encoder of `source`, its own weights not yet loaded.

    Args:
      source: `EncoderSource`.
      config: dictionary as in a run's `config.json`.
      seed: of everything drawn at the start.
      settings: `Settings` that say which losses count, or None to apply the model only.
      trainable: whether the encoder is to be trained.

    Raises:
      UserError: flow, `low_dim` or `max_seq_length` do not fit the encoder.
    """
    encoder = SentenceEncoder(source, config["sentence_embedding_type"], trainable=trainable)
    if encoder.max_seq_length and config["max_seq_length"] > encoder.max_seq_length:
        raise UserError(
            f"--max_seq_length: found {config['max_seq_length']}, expected at most {encoder.max_seq_length}, "
            f"the positions of the encoder {source.bert_hub}"
        )
    encoder.seed_dropout(seed)
    flow = None
    if config["flow"]:
        try:
            flow = Glow(
                GlowConfig.from_dict(config["flow_config"], source="config.json"), encoder.embedding_size, seed=seed
            )
        except ValueError as error:
            raise UserError(f"--flow_model_config: {error}") from error
    return SiameseBertFlow(
        encoder,
        flow,
        embedding_size=encoder.embedding_size,
        num_labels=config["num_labels"],
        low_dim=config["low_dim"],
        num_examples=settings.num_examples if settings else -1,
        l2_penalty=settings.l2_penalty if settings else -1.0,
        flow_loss=bool(settings and settings.flow_loss),
        seed=seed,
    )


def checkpoint_of(model, with_encoder):
    """Keywords of a `tf.train.Checkpoint` of what a model learned: flow, classifier and, where trained, encoder."""
    parts = {}
    if model.flow is not None:
        parts["flow"] = model.flow
    if model.output_weights is not None:
        parts["output_weights"] = model.output_weights
    if with_encoder:
        parts["encoder"] = model.encoder.variables_by_name
    return parts


def begin_with(model, config, init_checkpoint):
    """Gives flow and classifier the values that a run's checkpoint holds for them, as the original does by name.

    The encoder's part of the checkpoint is `resolve_encoder`'s. Nothing happens where `init_checkpoint` is None or no
    checkpoint of a run.

    Raises:
      UserError: the checkpoint's flow or classifier is of another kind or shape.
    """
    if not init_checkpoint or not is_run_checkpoint(init_checkpoint):
        return
    old = experiment.read_config(pathlib.Path(init_checkpoint).parent)
    parts = {}
    if model.flow is not None and old["flow"]:
        if old["flow_config"] != config["flow_config"]:
            raise UserError(
                f"--init_checkpoint={init_checkpoint}: found a flow of {old['flow_config']}, expected one of "
                f"{config['flow_config']}"
            )
        parts["flow"] = model.flow
    if model.output_weights is not None and old["num_labels"]:
        parts["output_weights"] = model.output_weights
    if not parts:
        return
    try:
        status = tf.train.Checkpoint(**parts).restore(str(init_checkpoint))
        status.expect_partial().assert_existing_objects_matched()
    except ValueError as error:
        raise UserError(f"--init_checkpoint={init_checkpoint}: {' '.join(str(error).split())}") from error
    logging.info("%s begin with the values in %s", " and ".join(parts), init_checkpoint)


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


def run_config(settings, task, source, data):
    """The `config.json` of a run: all that using its weights takes, and all that decides whether a run is the same."""
    return {
        "format_version": experiment.FORMAT_VERSION,
        "encoder": source.to_dict(),
        "encoder_flags": {
            name: os.path.abspath(value) if isinstance(value, str) and _is_local(value) else value
            for name, value in encoder_flags(settings).items()
        },
        "sentence_embedding_type": settings.sentence_embedding_type,
        "max_seq_length": settings.max_seq_length,
        "low_dim": settings.low_dim,
        "flow": bool(settings.flow),
        "flow_config": flow_config(settings.flow_model_config).to_dict() if settings.flow else None,
        "encoder_trained": not settings.encoder_is_frozen,
        "num_labels": None if task.is_regression else len(task.label_names),
        "task_name": task.name,
        "data": None if data is None else {"num_examples": data.num_examples, "fingerprint": data.fingerprint},
        "flags": settings.what_training_depends_on(),
    }


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
    steps_per_epoch = data.num_examples // settings.train_batch_size
    total_steps = int(data.num_examples / settings.train_batch_size * settings.num_train_epochs)
    if not total_steps:
        raise UserError(f"--num_train_epochs: found {settings.num_train_epochs}, which is no step at all")
    with strategy.scope():
        model = build_model(
            source, config, seed=settings.seed, settings=settings, trainable=not settings.encoder_is_frozen
        )
        begin_with(model, config, settings.init_checkpoint)
        schedule = WarmupLinearDecay(settings.learning_rate, total_steps, int(total_steps * settings.warmup_proportion))
        flow_optimizer = AdamWeightDecay(settings.flow_learning_rate, name="flow_adam") if settings.flow_loss else None
        model.compile(AdamWeightDecay(schedule, name="adam"), flow_optimizer)
    # Cached embeddings are without dropout; elsewhere every replica draws its own, so their number is part of the run.
    dropout_state = [] if settings.caches_embeddings else model.encoder.dropout_state
    config |= {"replicas": strategy.num_replicas_in_sync if dropout_state else None}
    output_dir = settings.output_dir
    resumed = experiment.open_run(output_dir, config, settings.overwrite, settings.missing_outputs())
    trained = resumed and (output_dir / experiment.TRAIN_RESULTS_FILE).exists()

    step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
    parts = checkpoint_of(model, with_encoder=not settings.encoder_is_frozen)
    checkpoint = tf.train.Checkpoint(
        step=step,
        optimizer=model.optimizer,
        **({"flow_optimizer": flow_optimizer} if flow_optimizer else {}),
        **({"dropout": dropout_state} if dropout_state else {}),
        **parts,
    )
    manager = tf.train.CheckpointManager(
        checkpoint, str(output_dir), max_to_keep=KEEP_CHECKPOINT_MAX, checkpoint_name=CHECKPOINT_NAME
    )
    if resumed and manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint).assert_consumed()
        logging.info("Resumed from %s", manager.latest_checkpoint)
    if trained:
        return model, int(step)

    stages.end("load")
    if settings.caches_embeddings:
        embeddings = input_pipeline.cached_embeddings(
            model.encoder,
            tokenizer,
            data.pairs.pieces,
            settings.max_seq_length,
            cache_dir=settings.cached_dir or output_dir,
            pad_to_max=settings.pad_to_max_seq_length,
        )
        stages.end("embed")
        features = input_pipeline.embedding_features(embeddings)
    else:
        _warn_of_unseeded_dropout(model.encoder)
        features = input_pipeline.token_features(
            data.pairs, tokenizer, settings.max_seq_length, settings.pad_to_max_seq_length
        )
    if int(step) == 0 and settings.flow_ddi:
        _initialize_flow(model, features, data, settings)
    if int(step) == 0 and not manager.latest_checkpoint:
        manager.save(checkpoint_number=0)

    logging.info("***** Running training *****")
    logging.info("  Num examples = %d", data.num_examples)
    logging.info("  Batch size = %d on %d replica(s)", settings.train_batch_size, strategy.num_replicas_in_sync)
    logging.info("  Num steps = %d", total_steps)
    batches = input_pipeline.training_batches(
        features,
        data.pairs.labels,
        batch_size=settings.train_batch_size,
        seed=settings.seed,
        skip_steps=int(step),
    )
    saver = _Saver(
        model, step, manager, steps_per_epoch if settings.early_stopping else settings.save_checkpoints_steps
    )
    summaries = _Summaries(step, output_dir, settings.log_every_step)
    callbacks = [_StopIfNotFinite(step, manager), saver, summaries]
    on_terminal = sys.stdout.isatty()
    if not on_terminal:
        callbacks.append(_LogProgress(step, total_steps))
    if settings.early_stopping:
        early_stopping = _EarlyStopping(step, steps_per_epoch, evaluate, output_dir)
        callbacks.append(early_stopping)
    if int(step) < total_steps and not (settings.early_stopping and early_stopping.has_stopped(model)):
        with _StopOnSignal() as stop:
            steps = total_steps - int(step)
            model.fit(
                _unsharded(batches), steps_per_epoch=steps, callbacks=[*callbacks, stop], verbose=int(on_terminal)
            )
        if saver.saved_at != int(step):
            saver.save()
        if stop.signal:
            logging.warning("Stopped by signal %d at step %d: the same command goes on there", stop.signal, int(step))
            raise KeyboardInterrupt
    stages.end("train")
    results = {
        "steps": int(step),
        "stages": stages.ended,
        "replicas": strategy.num_replicas_in_sync,
        **{name: float(value) for name, value in summaries.last.items()},
    }
    experiment.write_atomically(output_dir / experiment.TRAIN_RESULTS_FILE, json.dumps(results, indent=2) + "\n")
    return model, int(step)


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


def _warn_of_unseeded_dropout(encoder):
    if not encoder.dropout_state:
        logging.warning(
            "%s has no seed for dropout: two runs may differ in the last bits, unless it has no dropout either",
            encoder.source.bert_hub,
        )


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


class _StopIfNotFinite(tf_keras.callbacks.Callback):
    """Counts steps, and ends training at the first loss or gradient norm that is not finite, before it can be saved."""

    def __init__(self, step, manager):
        super().__init__()
        self.step = step
        self.manager = manager

    def on_train_batch_end(self, batch, logs=None):
        self.step.assign_add(1)
        for name, value in logs.items():
            if not np.isfinite(value):
                raise UserError(
                    f"step {int(self.step)}: found {name} {value}, expected a finite number; "
                    f"the last good state is {self.manager.latest_checkpoint}"
                )


class _Saver(tf_keras.callbacks.Callback):
    """Saves a checkpoint every so many steps, none with a variable that is not finite."""

    def __init__(self, trained, step, manager, every):
        super().__init__()
        self.trained = trained
        self.step = step
        self.manager = manager
        self.every = every
        self.saved_at = None

    def save(self):
        """Saves the state at this step.

        Raises:
          UserError: a variable is not finite; nothing is saved.
        """
        # A step's loss is that of the variables before it: they may be lost while the loss is still finite.
        for variable in self.trained.supervised_variables + self.trained.flow_variables:
            if not np.isfinite(variable.numpy()).all():
                raise UserError(
                    f"step {int(self.step)}: found {variable.name} with values that are not finite, expected finite "
                    f"ones; the last good state is {self.manager.latest_checkpoint}"
                )
        self.saved_at = int(self.step)
        self.manager.save(checkpoint_number=self.saved_at)

    def on_train_batch_end(self, batch, logs=None):
        if int(self.step) % self.every == 0:
            self.save()


class _Summaries(tf_keras.callbacks.Callback):
    """Writes the steps' losses and gradient norms for TensorBoard."""

    def __init__(self, step, output_dir, every):
        super().__init__()
        self.step = step
        self.every = every
        self.writer = tf.summary.create_file_writer(str(output_dir))
        self.last = {}

    def on_train_batch_end(self, batch, logs=None):
        self.last = dict(logs)
        if int(self.step) % self.every == 0:
            with self.writer.as_default(step=int(self.step)):
                for name, value in logs.items():
                    tf.summary.scalar(name, value)

    def on_train_end(self, logs=None):
        self.writer.flush()


class _LogProgress(tf_keras.callbacks.Callback):
    """Logs about ten lines of progress, where there is no terminal for a bar."""

    def __init__(self, step, total_steps):
        super().__init__()
        self.step = step
        self.total_steps = total_steps
        self.every = max(1, total_steps // 10)

    def on_train_batch_end(self, batch, logs=None):
        step = int(self.step)
        if step % self.every == 0 or step == self.total_steps:
            shown = "  ".join(f"{name} {value:.4f}" for name, value in logs.items())
            logging.info("  step %d of %d  %s", step, self.total_steps, shown)


class _EarlyStopping(tf_keras.callbacks.Callback):
    """Evaluates on dev after every epoch and stops at the first one that is no better than the best before.

    The original asks whether the correlation has *not fallen*, and so stops as soon as it rises; here it stops when it
    no longer rises. The best value so far is kept beside the checkpoints, for a run that is resumed.
    """

    def __init__(self, step, steps_per_epoch, evaluate, output_dir):
        super().__init__()
        self.step = step
        self.steps_per_epoch = steps_per_epoch
        self.evaluate = evaluate
        self.path = pathlib.Path(output_dir) / "early_stopping.json"
        self.seen = json.loads(self.path.read_text()) if self.path.exists() else {}

    def on_train_batch_end(self, batch, logs=None):
        step = int(self.step)
        if step % self.steps_per_epoch:
            return
        if self._falls(step, self.model):
            self.model.stop_training = True

    def has_stopped(self, model):
        """Whether a run that goes on at this step has to stop at once: it was interrupted after its last epoch."""
        step = int(self.step)
        return step > 0 and step % self.steps_per_epoch == 0 and self._falls(step, model)

    def _falls(self, step, model):
        """Whether the dev score at this step is no better than the best before it."""
        metrics = self.evaluate(model)
        score = float(metrics["eval_pearsonr" if "eval_pearsonr" in metrics else "eval_accuracy"])
        best = max((value for at, value in self.seen.items() if int(at) < step), default=-np.inf)
        self.seen[str(step)] = score
        experiment.write_atomically(self.path, json.dumps(self.seen) + "\n")
        logging.info("  dev score %.6f at step %d, best before %.6f", score, step, best)
        return score <= best


class _StopOnSignal(tf_keras.callbacks.Callback):
    """Context and callback: SIGINT and SIGTERM end `fit` after the running step; `signal` is then their number."""

    def __init__(self):
        super().__init__()
        self.signal = 0

    def __enter__(self):
        self._handlers = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exception):
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _note(self, number, frame):
        self.signal = number

    def on_train_batch_end(self, batch, logs=None):
        if self.signal:
            self.model.stop_training = True
