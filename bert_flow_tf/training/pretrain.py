"""Masked language modelling on one's own text: from an encoder to an encoder folder, in a run that can be resumed.

The run's folder lies beside the encoder folder, see `run_folder`: `config.json`, checkpoints while it is not
finished, `dev_losses.json`, `train_results.json` at its end, and events for TensorBoard.
"""

import concurrent.futures
import dataclasses
import functools
import math
import os
import pathlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
import tensorflow as tf
import tf_keras
from tqdm import tqdm

from bert_flow_tf.encoder import stream
from bert_flow_tf.encoder.convert.bert_config import read_tf1_config
from bert_flow_tf.encoder.convert.encoder_folder import write_with_weights
from bert_flow_tf.encoder.convert.folders import BERT_CONFIG_FILE, ENCODER_FOLDER
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.encoder.tokenizer import TOKEN_SPECS, Tokenizer
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.atomic import new_folder, output_folder
from bert_flow_tf.files.checkpoints import save_checkpoint, whole_checkpoint
from bert_flow_tf.files.json_files import read_json, write_json
from bert_flow_tf.files.locks import locked
from bert_flow_tf.files.sentence_files import parts
from bert_flow_tf.model.build import absolute_flags, encoder_record
from bert_flow_tf.model.masked_lm import NOT_PREDICTED, MaskedLanguageModel
from bert_flow_tf.runs.folder import CHECKPOINT_NAME, TRAIN_RESULTS_FILE, differences, open_run, owned_run
from bert_flow_tf.runs.pretraining import (
    LONGEST_SENTENCE,
    MASKED_LM,
    MOST_DEV_SENTENCES,
    PretrainingSettings,
    run_folder,
)
from bert_flow_tf.runs.record import (
    Model,
    RunConfig,
    Setting,
    Training,
    TrainingData,
    TrainingResults,
    made_by,
    model_at,
    read_config,
)
from bert_flow_tf.runs.settings import DeviceSettings
from bert_flow_tf.training import callbacks
from bert_flow_tf.training.devices import configure_devices
from bert_flow_tf.training.masking import Masking, masked_batches
from bert_flow_tf.training.pairs import Pairs, fingerprint
from bert_flow_tf.training.pretrained import is_written, origin, remove_needless_checkpoints
from bert_flow_tf.training.schedule import WarmupLinearDecay
from bert_flow_tf.training.train import Stages
from glow.optimizer import AdamWeightDecay

_KEPT_CHECKPOINTS = 2
_LOG_EVERY_STEP = 10
_DEV_LOSSES_FILE = "dev_losses.json"
_UNCUT = 2**31
# Share of the word pieces; more say that text and vocabulary do not belong together.
_MOST_UNKNOWN = 0.5
_ACTIVATIONS = {
    "gelu_tanh": functools.partial(tf_keras.activations.gelu, approximate=True),
    "gelu_erf": tf_keras.activations.gelu,
}


def pretrain(
    sentences: Iterable[str],
    source: EncoderSource,
    out_dir: str | os.PathLike,
    settings: PretrainingSettings,
    *,
    devices: DeviceSettings | None = None,
    overwrite: bool = False,
    report: Callable[[str], None] = lambda line: None,
    show_progress_bar: bool | None = False,
) -> TrainingResults:
    """The results of a run that continues the encoder of `source`, trained or resumed; the encoder folder is written.

    Its optimiser is TF1 BERT's: `glow.optimizer` with `training.schedule`. The pooler stays as it is.

    Args:
      sentences: of the text, or paragraphs; empty ones are left out.
      report: is given a line for each dev loss.
      show_progress_bar: None shows it on a terminal only; `report` is then best `report_line`.

    Raises:
      UserError: see `open_run`; the text or a setting does not fit; a loss is not finite; the disk is full.
      KeyboardInterrupt: SIGINT or SIGTERM came; the state has been saved.
    """
    settings.check()
    run_dir = run_folder(out_dir)
    with locked(out_dir), owned_run(run_dir):
        # Of a command that was killed after it had written the folder.
        remove_needless_checkpoints(out_dir)
        out = output_folder(out_dir, ENCODER_FOLDER, overwrite=overwrite)
        devices = devices or DeviceSettings()
        return _Run(sentences, source, out, settings, devices, overwrite, report, show_progress_bar).results()


def report_line(line: str) -> None:
    """Writes a line to stderr, above a bar."""
    tqdm.write(line, file=sys.stderr)


class _Run:
    def __init__(
        self,
        sentences: Iterable[str],
        source: EncoderSource,
        out: pathlib.Path,
        settings: PretrainingSettings,
        devices: DeviceSettings,
        overwrite: bool,
        report: Callable[[str], None],
        show_progress_bar: bool | None,
    ) -> None:
        self.source, self.out, self.settings, self.report = source, out, settings, report
        self.hides_bar = None if show_progress_bar is None else not show_progress_bar
        self.run_dir = run_folder(out)
        self.stages = Stages()
        self.strategy = configure_devices(devices, None, settings.train_batch_size)
        self.tokenizer = Tokenizer.from_source(source)
        pieces = _windows(_tokenized(self.tokenizer, sentences), settings.max_seq_length - 2)
        self.train, self.dev = _split(pieces, settings)
        count = int(self.train.nrows())
        most = max(count, PretrainingSettings.train_batch_size)
        if settings.train_batch_size > most:
            # A batch of any size that is typed would take all memory.
            raise ArgumentError(
                f"train_batch_size: found {settings.train_batch_size} for {count} sentences to learn from, expected at "
                f"most {most}"
            )
        self.masking = Masking(
            self.tokenizer,
            settings.masked_lm_prob,
            settings.do_whole_word_mask,
            settings.max_seq_length,
            settings.seed,
        )
        with self.strategy.scope():
            self.model = compiled_model(source, settings)
        self.config = self._config(fingerprint(Pairs(pieces, np.empty(0))), devices)
        self._open(overwrite)

    def _config(self, text: str, devices: DeviceSettings) -> RunConfig:
        flags = dataclasses.asdict(self.settings) | {"use_xla": devices.use_xla}
        # What is learned does not depend on it.
        del flags["save_checkpoints_steps"]
        sentences = int(self.train.nrows() + self.dev.nrows())
        tuning = {name: value for name, value in flags.items() if name != "seed" and value is not None}
        encoder = encoder_record(self.source)
        learned = Training(
            settings={"objective": MASKED_LM, "sentences": sentences, **tuning},
            seed=self.settings.seed,
            began_with=encoder.fine_tuning,
        )
        encoder = msgspec.structs.replace(encoder, fingerprint=None, weights=None, fine_tuning=learned)
        handles: dict[str, Setting] = {"bert_hub": self.source.bert_hub, "preprocess_hub": self.source.preprocess_hub}
        return RunConfig(
            made_by=made_by("bert-flow pretrain"),
            model=Model(encoder=encoder, pooling="avg", max_seq_length=self.settings.max_seq_length),
            encoder=self.source.files,
            encoder_flags=absolute_flags(handles),
            encoder_trained=True,
            data=TrainingData(num_examples=sentences, fingerprint=text),
            flags=flags,
        )

    def _open(self, overwrite: bool) -> None:
        """Makes the run's folder ready, and gives the model what its last checkpoint holds."""
        old, results = read_config(self.run_dir), self.run_dir / TRAIN_RESULTS_FILE
        is_other = old is not None and bool(differences(old.identity, self.config.identity))
        written = is_written(self.out)
        # Where its encoder folder could not be written, a finished run is resumed for that alone.
        has_ended = results.exists() and (written or not any(self.run_dir.glob(f"{CHECKPOINT_NAME}-*")))
        restart = overwrite and (is_other or has_ended)
        missing = [] if written else [self.out]
        resumed = open_run(self.run_dir, self.config, restart, missing, named_by="--out")
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        self.seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False, name="seconds")
        model = self.model
        checkpoint = tf.train.Checkpoint(
            step=self.step,
            optimizer=model.optimizer,
            encoder=model.encoder.variables_by_name,
            head=model.head_variables,
            **({"seconds": self.seconds} if self.settings.minutes is not None else {}),
        )
        last = None
        if resumed:
            last = whole_checkpoint(self.run_dir, CHECKPOINT_NAME, _KEPT_CHECKPOINTS, remove=not results.exists())
        self.manager = tf.train.CheckpointManager(
            checkpoint, str(self.run_dir), max_to_keep=_KEPT_CHECKPOINTS, checkpoint_name=CHECKPOINT_NAME
        )
        if last:
            checkpoint.restore(last).assert_consumed()
        elif results.exists():
            raise UserError(
                f"{self.run_dir}: found a finished run without its checkpoint, expected both (use --overwrite to train "
                "again)"
            )

    def results(self) -> TrainingResults:
        path = self.run_dir / TRAIN_RESULTS_FILE
        if path.exists():
            results = read_json(path, TrainingResults, expected="a finished run's results")
        else:
            self.stages.end("load")
            losses = self._fit()
            self.stages.end("train")
            results = TrainingResults(
                made_by=self.config.made_by,
                model=model_at(self.config, self.manager.latest_checkpoint),
                data=self.config.data,
                steps=int(self.step),
                stages=self.stages.ended,
                replicas=self.strategy.num_replicas_in_sync,
                dev_losses=losses,
            )
            write_json(path, results)
        variables = {name: variable.numpy() for name, variable in self.model.encoder.variables_by_name.items()}
        with new_folder(self.out) as folder:
            write_with_weights(folder, self.source, variables, origin(results))
        remove_needless_checkpoints(self.out)
        return results

    def _fit(self) -> dict[str, float]:
        """Trains to the end; gives the dev losses by step."""
        settings, model, total = self.settings, self.model, self.settings.steps
        if int(self.step) == 0 and not self.manager.latest_checkpoint:
            save_checkpoint(self.manager, 0)
        used: list[Any] = []
        clock = None
        if settings.minutes is not None:
            clock = _Clock(self.seconds, 60.0 * settings.minutes)
            used.append(clock)
        saver = callbacks.Saver(model.learned_variables, self.step, self.manager, settings.save_checkpoints_steps)
        progress = callbacks.Progress(self.step, total or sys.maxsize, self.run_dir, _LOG_EVERY_STEP, has_bar=False)
        used += [saver, progress]
        dev = _DevLosses(self, self.dev, progress.writer) if int(self.dev.nrows()) else None
        if dev is None and settings.dev_fraction > 0:
            self.report("note: no sentence is left to be held out, so there is no dev loss")
        if dev is not None:
            dev.evaluate_when_due()
            used.append(dev)
        is_over = int(self.step) >= total if total is not None else clock is not None and clock.is_over
        if not is_over:
            batches = masked_batches(
                self.train, self.masking, batch_size=settings.train_batch_size, skip_steps=int(self.step)
            )
            steps = (total or sys.maxsize) - int(self.step)
            at: dict[str, Any] = {"initial": int(self.step), "total": total, "unit": "step", "disable": self.hides_bar}
            with callbacks.StopOnSignal() as stop, tqdm(desc=MASKED_LM, **at) as bar:
                moves = tf_keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: bar.update())
                model.fit(batches, steps_per_epoch=steps, callbacks=[*used, moves, stop], verbose=0)
            if saver.saved_at != int(self.step):
                saver.save()
            if stop.signal:
                self.report(
                    f"stopped by signal {stop.signal} at step {int(self.step)}: rerun the same command to resume"
                )
                raise KeyboardInterrupt
        if int(self.step) < settings.num_warmup_steps:
            self.report(
                f"note: the time took {int(self.step)} steps, which end in the warm-up of {settings.num_warmup_steps}"
            )
        if dev is None:
            return {}
        dev.evaluate()
        return dev.losses


def compiled_model(source: EncoderSource, settings: PretrainingSettings) -> MaskedLanguageModel:
    """The encoder of `source` with a new head, and TF1 BERT's optimiser.

    Raises:
      UserError: the encoder cannot be loaded, or has fewer positions than `settings.max_seq_length`.
    """
    encoder = SentenceEncoder(source, "avg", trainable=True)
    if encoder.max_seq_length and settings.max_seq_length > encoder.max_seq_length:
        raise ArgumentError(
            f"max_seq_length: found {settings.max_seq_length}, expected at most {encoder.max_seq_length}, the "
            f"positions of the encoder {source.bert_hub}"
        )
    encoder.seed_dropout(settings.seed)
    path = source.encoder_dir.parent / BERT_CONFIG_FILE
    # TF-Hub's BERTs have TF1's GELU.
    activation, initializer_range = "gelu_tanh", 0.02
    if path.is_file():
        config = read_tf1_config(path)
        activation, initializer_range = config.hidden_act, config.initializer_range
    model = MaskedLanguageModel(
        encoder,
        activation=_ACTIVATIONS.get(activation, activation),
        initializer_range=initializer_range,
        seed=settings.seed,
    )
    total_steps = math.inf if settings.steps is None else settings.steps
    schedule = WarmupLinearDecay(settings.learning_rate, total_steps, settings.num_warmup_steps)
    model.compile(AdamWeightDecay(schedule, name="adam"))
    return model


class _DevLosses(tf_keras.callbacks.Callback):
    """The mean loss of the held-out sentences' predicted word pieces, by step; its masks are always the same."""

    def __init__(self, run: _Run, pieces: tf.RaggedTensor, writer: tf.summary.SummaryWriter) -> None:
        super().__init__()
        self.run, self._writer = run, writer
        self._path = run.run_dir / _DEV_LOSSES_FILE
        self.losses: dict[str, float] = {}
        if self._path.exists():
            seen = read_json(self._path, dict[str, float], expected="dev losses by step", versioned=False)
            self.losses = {at: loss for at, loss in seen.items() if int(at) <= int(run.step)}
        self._train_losses: list[float] = []
        self._batches = []
        masking, length = tf.function(run.masking, reduce_retracing=True), run.settings.max_seq_length
        for rows in stream.length_batches(pieces.row_lengths().numpy()):
            # No sentence of training has a number below 0.
            numbers = tf.constant(-1 - rows, tf.int64)
            self._batches.append(masking(run.tokenizer.pack(tf.gather(pieces, rows), length), numbers))
        if not any(bool(tf.reduce_any(labels != NOT_PREDICTED)) for _, labels in self._batches):
            raise UserError(
                "dev_fraction: found held-out sentences of which no word is short enough to be predicted whole, "
                "expected more sentences, or a larger masked_lm_prob"
            )
        labels = tf.TensorSpec([None, None], tf.int32)
        self._losses_of = tf.function(run.model.token_losses, input_signature=[TOKEN_SPECS, labels], autograph=False)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any]) -> None:
        self._train_losses.append(float(logs["loss"]))
        self.evaluate_when_due()

    def evaluate_when_due(self) -> None:
        if int(self.run.step) % self.run.settings.save_checkpoints_steps == 0:
            self.evaluate()

    def evaluate(self) -> None:
        """Computes and reports the loss at this step, unless it is known."""
        step = str(int(self.run.step))
        if step in self.losses:
            return
        # Keras calls in the strategy's scope, where an encoder cannot be traced; a thread is outside of it.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            losses = thread.submit(self._compute).result()
        loss = float(np.mean(losses, dtype=np.float64))
        if not math.isfinite(loss):
            raise UserError(f"step {step}: found a dev loss of {loss}, expected a finite number (see learning_rate)")
        self.losses[step] = loss
        write_json(self._path, self.losses)
        of = "" if self.run.settings.steps is None else f" of {self.run.settings.steps}"
        trained = f"loss {np.mean(self._train_losses):.4f}, " if self._train_losses else ""
        self._train_losses.clear()
        perplexity = math.exp(min(self.losses[step], 700.0))
        with self._writer.as_default(step=int(step)):
            tf.summary.scalar("dev_loss", self.losses[step])
            tf.summary.scalar("dev_perplexity", perplexity)
        self.run.report(f"step {step}{of}: {trained}dev loss {self.losses[step]:.4f} (perplexity {perplexity:.4g})")

    def _compute(self) -> np.ndarray:
        return np.concatenate([self._losses_of(inputs, labels).numpy() for inputs, labels in self._batches])


class _Clock(tf_keras.callbacks.Callback):
    """Ends training after so many seconds of it, those before an interruption counted; `spent` is in checkpoints."""

    def __init__(self, spent: tf.Variable, most: float) -> None:
        super().__init__()
        self._spent, self._most = spent, most
        self._since = time.monotonic() - float(spent)

    @property
    def is_over(self) -> bool:
        return float(self._spent) >= self._most

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any]) -> None:
        self._spent.assign(time.monotonic() - self._since)
        if self.is_over:
            self.model.stop_training = True


def _tokenized(tokenizer: Tokenizer, sentences: Iterable[str]) -> tf.RaggedTensor:
    """Word pieces of the sentences that have any: int32 RaggedTensor [n, (t)]."""
    found: list[tf.RaggedTensor] = []
    seen = 0
    for part in parts(sentences):
        for number, sentence in enumerate(part, start=seen):
            if len(sentence) > LONGEST_SENTENCE:
                raise UserError(
                    f"sentences[{number}]: found {len(sentence):,} characters, {sentence[:40]!r}…, expected a sentence "
                    f"or paragraph of at most {LONGEST_SENTENCE:,}"
                )
        seen += len(part)
        pieces = stream.tokenize(tokenizer, part, _UNCUT)
        found.append(tf.ragged.boolean_mask(pieces, pieces.row_lengths() > 0))
    if not sum(int(pieces.nrows()) for pieces in found):
        raise UserError("sentences: found no text, expected a sentence or paragraph each")
    pieces = tf.concat(found, axis=0)
    unknown = np.mean(pieces.flat_values.numpy() == tokenizer.unknown_id)
    if unknown > _MOST_UNKNOWN:
        raise UserError(
            f"sentences: found {unknown:.0%} of the word pieces unknown to the encoder's vocabulary, expected text in "
            "its language"
        )
    return pieces


def _windows(pieces: tf.RaggedTensor, most: int) -> tf.RaggedTensor:
    """The rows of ragged int32 [n, (t)] in rows of at most `most`, in their order."""
    lengths = pieces.row_lengths().numpy()
    counts = -(-lengths // most)
    cut = np.full(counts.sum(), most)
    cut[np.cumsum(counts) - 1] = lengths - (counts - 1) * most
    return tf.RaggedTensor.from_row_lengths(pieces.flat_values, cut)


def _split(pieces: tf.RaggedTensor, settings: PretrainingSettings) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """The sentences to learn from, and those that are held out."""
    count = int(pieces.nrows())
    held_out = min(math.ceil(count * settings.dev_fraction), MOST_DEV_SENTENCES, count - 1)
    order = np.random.default_rng([settings.seed, 0]).permutation(count)
    return tf.gather(pieces, np.sort(order[held_out:])), tf.gather(pieces, np.sort(order[:held_out]))
