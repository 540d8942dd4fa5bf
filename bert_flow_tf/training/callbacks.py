"""Keras callbacks of training: checkpoints, signals, progress, scores on dev, early stopping."""

import concurrent.futures
import pathlib
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging
from tqdm import tqdm

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.checkpoints import last_readable_checkpoint, save_checkpoint
from bert_flow_tf.files.json_files import read_json, write_json
from bert_flow_tf.runs.folder import CHECKPOINT_NAME, TRAIN_RESULTS_FILE
from bert_flow_tf.runs.record import TrainingResults

Logs = Mapping[str, float]


class Steps(tf_keras.callbacks.Callback):
    """Count and save a run's steps; stop if values are not finite.

    The last `kept` checkpoints stay in `run_dir`; each holds the step and those `parts` that are not None.
    """

    def __init__(self, run_dir: pathlib.Path, kept: int, **parts: object) -> None:
        super().__init__()
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        saved = {name: part for name, part in parts.items() if part is not None}
        self._kept, self._checkpoint = kept, tf.train.Checkpoint(step=self.step, **saved)
        self.manager = tf.train.CheckpointManager(self._checkpoint, str(run_dir), kept, checkpoint_name=CHECKPOINT_NAME)
        self._saved_at = self._signal = 0

    def restore(self, prefix: str | None = None) -> str | None:
        """Restore a checkpoint, by default the last complete one; return its prefix.

        Raises:
          UserError: the run is finished, and its checkpoint is missing or damaged.
        """
        folder = pathlib.Path(self.manager.directory)
        is_trained = (folder / TRAIN_RESULTS_FILE).exists()
        prefix = prefix or last_readable_checkpoint(folder, CHECKPOINT_NAME, self._kept, remove=not is_trained)
        if prefix:
            self._checkpoint.restore(prefix).assert_consumed()
            logging.info("Resumed from %s", prefix)
        self._saved_at = int(self.step)
        if is_trained:
            results = read_json(folder / TRAIN_RESULTS_FILE, TrainingResults, expected="a finished run's results")
            if not prefix or int(self.step) != results.steps:
                found = f"found a finished run without its checkpoint of step {results.steps}"
                raise UserError(f"{folder}: {found}; use --overwrite to train again")
        return prefix

    def fit(
        self,
        model: tf_keras.Model,
        batches: tf.data.Dataset,
        total: int,
        learned: Sequence[tf.Variable],
        *,
        save_every: int,
        others: Sequence[tf_keras.callbacks.Callback],
        writes: bool = True,
    ) -> None:
        """Train to step `total` unless a callback or a signal stops it.

        `learned` are the trained variables, `others` further callbacks. Only a worker with `writes`, the chief, saves.

        Raises:
          UserError: a loss, a gradient or a variable is not finite.
          KeyboardInterrupt: SIGINT or SIGTERM came; the state has been saved.
        """
        self._learned, self._every, self._writes = learned, save_every, writes
        if int(self.step) == total:
            return
        # Only the main thread can handle signals, and Ray trains in another thread.
        signals = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        handlers = {each: signal.signal(each, lambda number, _: setattr(self, "_signal", number)) for each in signals}
        try:
            model.fit(batches, steps_per_epoch=total - int(self.step), callbacks=[self, *others], verbose=0)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        self._save()
        if self._signal:
            found, step = self._signal, int(self.step)
            logging.warning("Stopped by signal %d at step %d: rerun the same command to resume", found, step)
            raise KeyboardInterrupt

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        self.step.assign_add(1)
        for name, value in logs.items():
            if not np.isfinite(value):
                self._stop(f"{name} {value}, expected a finite number")
        if int(self.step) % self._every == 0:
            self._save()
        if self._signal:
            self.model.stop_training = True

    def _save(self) -> None:
        if self._saved_at == int(self.step):
            return
        # Check the variables too, because a step computes its loss before it updates them.
        for variable in self._learned:
            if not np.isfinite(variable.numpy()).all():
                self._stop(f"{variable.name} with values that are not finite, expected finite ones")
        if self._writes:
            save_checkpoint(self.manager, int(self.step))
        self._saved_at = int(self.step)

    def _stop(self, found: str) -> NoReturn:
        good = f"{self.manager.directory}/{CHECKPOINT_NAME}-{self._saved_at}"
        raise UserError(f"step {int(self.step)}: found {found}; the last good checkpoint is {good}")


class Progress(tf_keras.callbacks.Callback):
    """Write TensorBoard logs; show a progress bar, or log progress ten times."""

    def __init__(
        self, step: tf.Variable, total_steps: int, output_dir: pathlib.Path, every: int, hide_bar: bool | None = None
    ) -> None:
        super().__init__()
        self.step, self.total_steps, self.every = step, total_steps, every
        self.writer = tf.summary.create_file_writer(str(output_dir))
        self.bar = tqdm(desc="train", initial=int(step), total=total_steps, unit="step", disable=hide_bar)

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        step = int(self.step)
        if step % self.every == 0:
            with self.writer.as_default(step=step):
                for name, value in logs.items():
                    tf.summary.scalar(name, value)
        self.bar.set_postfix(logs, refresh=False)
        self.bar.update()
        if self.bar.disable and (step % max(1, self.total_steps // 10) == 0 or step == self.total_steps):
            losses = "  ".join(f"{name} {value:.4f}" for name, value in logs.items())
            logging.info("  step %d of %d  %s", step, self.total_steps, losses)

    def on_train_end(self, logs: Logs | None = None) -> None:
        self.bar.close()
        self.writer.flush()


class DevScores(tf_keras.callbacks.Callback):
    """Score dev at intervals; save the scores for a resumed run."""

    def __init__(
        self, step: tf.Variable, every: int, path: pathlib.Path, measure: Callable[[], float], writes: bool = True
    ) -> None:
        super().__init__()
        self.step, self.every, self._path, self._measure, self._writes = step, every, path, measure, writes
        self.by_step: dict[int, float] = {}
        if path.exists():
            self.by_step = read_json(path, dict[int, float], expected="dev scores by step", versioned=False)

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        if int(self.step) % self.every == 0:
            self.score()

    def score(self) -> float:
        step = int(self.step)
        if step not in self.by_step:
            # Keras runs callbacks in the strategy's scope, where an encoder cannot run, so use another thread.
            with concurrent.futures.ThreadPoolExecutor(1) as thread:
                score = thread.submit(self._measure).result()
            if not np.isfinite(score):
                raise UserError(f"step {step}: found a dev score of {score}, expected a finite number")
            self.by_step[step] = score
            if self._writes:
                write_json(self._path, self.by_step)
        return self.by_step[step]


class EarlyStopping(DevScores):
    """Stop at the first epoch without a new best dev score.

    The original stops as soon as the correlation rises, because its test is inverted.
    """

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        if self.should_stop():
            self.model.stop_training = True

    def should_stop(self) -> bool:
        """True at the end of an epoch without a new best score."""
        step = int(self.step)
        if step == 0 or step % self.every:
            return False
        score = self.score()
        best = max((value for at, value in self.by_step.items() if at < step), default=float("-inf"))
        logging.info("  dev score %.6f at step %d, best before %.6f", score, step, best)
        return score <= best
