"""Keras callbacks of training: checkpoints, signals, progress, scores on dev, early stopping."""

import concurrent.futures
import logging
import pathlib
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import numpy as np
import tensorflow as tf
import tf_keras
from tqdm import tqdm

from bert_flow_tf.common.checkpoints import last_readable_checkpoint, save_checkpoint
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import read_json, write_json
from bert_flow_tf.training.run_folder import CHECKPOINT_NAME, TRAIN_RESULTS_FILE
from bert_flow_tf.training.run_records import TrainingResults

logger = logging.getLogger(__name__)

Logs = Mapping[str, float]


class Checkpoints:
    """Save and restore step and parts, except None, in `kept` checkpoints."""

    def __init__(self, run_dir: pathlib.Path, kept: int, **parts: object) -> None:
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        saved = {name: part for name, part in parts.items() if part is not None}
        self._checkpoint = tf.train.Checkpoint(step=self.step, **saved)
        self._kept = kept
        self.run_dir = run_dir
        self._manager = self._new_manager()

    def _new_manager(self) -> tf.train.CheckpointManager:
        return tf.train.CheckpointManager(
            self._checkpoint, str(self.run_dir), self._kept, checkpoint_name=CHECKPOINT_NAME
        )

    @property
    def latest(self) -> str | None:
        return self._manager.latest_checkpoint

    def save(self) -> None:
        save_checkpoint(self._manager, int(self.step))

    def restore(self, prefix: str | None = None) -> str | None:
        """Restore a checkpoint, by default the last complete one; return its prefix.

        Raises:
          UserError: the run is finished, and its checkpoint is missing or damaged.
        """
        results_path = self.run_dir / TRAIN_RESULTS_FILE
        is_trained = results_path.exists()
        prefix = prefix or last_readable_checkpoint(
            self.run_dir, CHECKPOINT_NAME, self._kept, remove=not is_trained
        )
        # A manager reads which checkpoints there are only once, and a killed process may have left
        # one that its list does not name.
        self._manager = self._new_manager()
        if prefix:
            self._checkpoint.restore(prefix).assert_consumed()
            logger.info("Resumed from %s", prefix)
        if is_trained:
            results = read_json(results_path, TrainingResults, expected="a finished run's results")
            if not prefix or int(self.step) != results.steps:
                found = f"found a finished run without its checkpoint of step {results.steps}"
                raise UserError(f"{self.run_dir}: {found}; use --overwrite to train again")
        return prefix


class Steps(tf_keras.callbacks.Callback):
    """Count and save steps; stop if values are not finite.

    A checkpoint is written every `every` steps. `learned` are the trained variables. Only a worker
    with `writes`, the chief, saves.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        every: int,
        learned: Sequence[tf.Variable],
        writes: bool = True,
    ) -> None:
        super().__init__()
        self._checkpoints = checkpoints
        self._every = every
        self._learned = learned
        self._writes = writes
        self.step = checkpoints.step
        self._saved_at = int(self.step)

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        self.step.assign_add(1)
        for name, value in logs.items():
            if not np.isfinite(value):
                self._stop(f"{name} {value}, expected a finite number")
        if int(self.step) % self._every == 0:
            self._save()

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._save()

    def _save(self) -> None:
        if self._saved_at == int(self.step):
            return
        # Check the variables too, because a step computes its loss before it updates them.
        for variable in self._learned:
            if not np.isfinite(variable.numpy()).all():
                self._stop(f"{variable.name} with values that are not finite, expected finite ones")
        if self._writes:
            self._checkpoints.save()
        self._saved_at = int(self.step)

    def _stop(self, found: str) -> NoReturn:
        good = f"{self._checkpoints.run_dir}/{CHECKPOINT_NAME}-{self._saved_at}"
        raise UserError(f"step {int(self.step)}: found {found}; the last good checkpoint is {good}")


class Signals(tf_keras.callbacks.Callback):
    """Let SIGINT and SIGTERM end training after the running step."""

    def __enter__(self) -> "Signals":
        self.received = 0
        # Only the main thread can handle signals, and Ray trains in another thread.
        signals = (
            (signal.SIGINT, signal.SIGTERM)
            if threading.current_thread() is threading.main_thread()
            else ()
        )
        self._handlers = {each: signal.signal(each, self._receive) for each in signals}
        return self

    def _receive(self, number: int, frame: object) -> None:
        self.received = number

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        if self.received:
            self.model.stop_training = True

    def __exit__(self, *error: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)


def fit(
    model: tf_keras.Model,
    batches: tf.data.Dataset,
    total: int,
    steps: Steps,
    others: Sequence[tf_keras.callbacks.Callback],
) -> None:
    """Train to step `total` unless a callback or a signal stops it.

    Raises:
      UserError: a loss, a gradient or a variable is not finite.
      KeyboardInterrupt: SIGINT or SIGTERM came; the state has been saved.
    """
    if (left := total - int(steps.step)) == 0:
        return
    with Signals() as signals:
        model.fit(batches, steps_per_epoch=left, callbacks=[steps, signals, *others], verbose=0)
    if signals.received:
        advice = "rerun the same command to resume"
        logger.warning(
            "Stopped by signal %d at step %d: %s", signals.received, int(steps.step), advice
        )
        raise KeyboardInterrupt


class Progress(tf_keras.callbacks.Callback):
    """Write TensorBoard logs; show a progress bar, or log progress ten times."""

    def __init__(
        self,
        step: tf.Variable,
        total_steps: int,
        output_dir: pathlib.Path,
        every: int,
        hide_bar: bool | None = None,
    ) -> None:
        super().__init__()
        self.step = step
        self.total_steps = total_steps
        self.every = every
        self.writer = tf.summary.create_file_writer(str(output_dir))
        self.bar = tqdm(
            desc="train", initial=int(step), total=total_steps, unit="step", disable=hide_bar
        )

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        step = int(self.step)
        if step % self.every == 0:
            with self.writer.as_default(step=step):
                for name, value in logs.items():
                    tf.summary.scalar(name, value)
        self.bar.set_postfix(logs, refresh=False)
        self.bar.update()
        if self.bar.disable and (
            step % max(1, self.total_steps // 10) == 0 or step == self.total_steps
        ):
            losses = "  ".join(f"{name} {value:.4f}" for name, value in logs.items())
            logger.info("  step %d of %d  %s", step, self.total_steps, losses)

    def on_train_end(self, logs: Logs | None = None) -> None:
        self.bar.close()
        self.writer.flush()


class DevScores(tf_keras.callbacks.Callback):
    """Score dev at intervals; save the scores for a resumed run."""

    def __init__(
        self,
        step: tf.Variable,
        every: int,
        path: pathlib.Path,
        measure: Callable[[], float],
        writes: bool = True,
    ) -> None:
        super().__init__()
        self.step = step
        self.every = every
        self._path = path
        self._measure = measure
        self._writes = writes
        self.by_step: dict[int, float] = {}
        if path.exists():
            found = read_json(
                path, dict[int, float], expected="dev scores by step", versioned=False
            )
            # Steps after the restored checkpoint are trained, and scored, again.
            self.by_step = {at: score for at, score in found.items() if at <= int(step)}

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        if int(self.step) % self.every == 0:
            self.score()

    def score(self) -> float:
        step = int(self.step)
        if step not in self.by_step:
            # Keras runs callbacks in the strategy's scope, where an encoder cannot run, so use
            # another thread.
            with concurrent.futures.ThreadPoolExecutor(1) as thread:
                score = thread.submit(self._measure).result()
            if not np.isfinite(score):
                raise UserError(
                    f"step {step}: found a dev score of {score}, expected a finite number"
                )
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
        best = max(
            (value for at, value in self.by_step.items() if at < step), default=float("-inf")
        )
        logger.info("  dev score %.6f at step %d, best before %.6f", score, step, best)
        return score <= best
