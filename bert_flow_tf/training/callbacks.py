"""Keras callbacks of training: checkpoints, summaries, progress, early stopping, signals."""

import concurrent.futures
import pathlib
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import NoReturn, TypeVar

import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.checkpoints import save_checkpoint, whole_checkpoint
from bert_flow_tf.files.json_files import read_json, write_json
from bert_flow_tf.model.siamese import SiameseBertFlow
from bert_flow_tf.runs.folder import CHECKPOINT_NAME, TRAIN_RESULTS_FILE
from bert_flow_tf.runs.record import TrainingResults

# Function of the model that gives its metrics on dev, by name.
Evaluate = Callable[[SiameseBertFlow], Mapping[str, float | np.floating]]
Logs = Mapping[str, float]
T = TypeVar("T")


class Steps(tf_keras.callbacks.Callback):
    """The steps of a run in `run_dir`: counted by `step`, saved by `manager`, never with values that are not finite.

    The last `kept` checkpoints hold the step and the `parts`, by name.
    """

    def __init__(self, run_dir: pathlib.Path, kept: int, **parts: object) -> None:
        super().__init__()
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False, name="global_step")
        self._kept, self._checkpoint = kept, tf.train.Checkpoint(step=self.step, **parts)
        name = {"max_to_keep": kept, "checkpoint_name": CHECKPOINT_NAME}
        self.manager = tf.train.CheckpointManager(self._checkpoint, str(run_dir), **name)
        self._saved_at = 0

    def restore(self, prefix: str | None = None) -> str | None:
        """Restore a checkpoint, by default the last whole one; return its prefix, None if there is none.

        Raises:
          UserError: the run is finished, and its checkpoint is missing or damaged.
        """
        folder = pathlib.Path(self.manager.directory)
        is_trained = (folder / TRAIN_RESULTS_FILE).exists()
        prefix = prefix or whole_checkpoint(folder, CHECKPOINT_NAME, self._kept, remove=not is_trained)
        if prefix:
            self._checkpoint.restore(prefix).assert_consumed()
            logging.info("Resumed from %s", prefix)
        self._saved_at = int(self.step)
        if is_trained:
            results = read_json(folder / TRAIN_RESULTS_FILE, TrainingResults, expected="a finished run's results")
            if not prefix or int(self.step) != results.steps:
                raise UserError(
                    f"{folder}: found a finished run without its checkpoint of step {results.steps}, expected both "
                    "(use --overwrite to train again)"
                )
        return prefix

    def fit(
        self,
        model: tf_keras.Model,
        batches: tf.data.Dataset,
        total: int,
        learned: Sequence[tf.Variable],
        *,
        save_every: int,
        used: Sequence[tf_keras.callbacks.Callback],
        writes: bool = True,
        shows_bar: bool = False,
    ) -> None:
        """Train to step `total`, or until a callback of `used` or a signal ends it; `learned` are the variables.

        `writes` is False for workers other than the chief, which only check.

        Raises:
          UserError: a loss, a gradient or a variable is not finite.
          KeyboardInterrupt: SIGINT or SIGTERM came; the state has been saved.
        """
        self._learned, self._every, self._writes = learned, save_every, writes
        with StopOnSignal() as stop:
            steps = total - int(self.step)
            model.fit(batches, steps_per_epoch=steps, callbacks=[self, *used, stop], verbose=int(shows_bar))
        self._save()
        if stop.signal:
            step = int(self.step)
            logging.warning("Stopped by signal %d at step %d: rerun the same command to resume", stop.signal, step)
            raise KeyboardInterrupt

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        self.step.assign_add(1)
        for name, value in logs.items():
            if not np.isfinite(value):
                self._stop(f"{name} {value}, expected a finite number")
        if int(self.step) % self._every == 0:
            self._save()

    def _save(self) -> None:
        if self._saved_at == int(self.step):
            return
        # A step's loss is that of the variables before it: they may be lost while the loss is still finite.
        for variable in self._learned:
            if not np.isfinite(variable.numpy()).all():
                self._stop(f"{variable.name} with values that are not finite, expected finite ones")
        if self._writes:
            save_checkpoint(self.manager, int(self.step))
        self._saved_at = int(self.step)

    def _stop(self, found: str) -> NoReturn:
        good = f"{self.manager.directory}/{CHECKPOINT_NAME}-{self._saved_at}"
        raise UserError(f"step {int(self.step)}: found {found}; the last good state is {good}")


class Progress(tf_keras.callbacks.Callback):
    """Write losses and norms for TensorBoard every so many steps; log about ten lines where there is no bar."""

    def __init__(self, step: tf.Variable, total_steps: int, output_dir: pathlib.Path, every: int, has_bar: bool):
        super().__init__()
        self.step, self.total_steps, self.every, self.has_bar = step, total_steps, every, has_bar
        self.writer = tf.summary.create_file_writer(str(output_dir))

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        step = int(self.step)
        if step % self.every == 0:
            with self.writer.as_default(step=step):
                for name, value in logs.items():
                    tf.summary.scalar(name, value)
        if not self.has_bar and (step % max(1, self.total_steps // 10) == 0 or step == self.total_steps):
            shown = "  ".join(f"{name} {value:.4f}" for name, value in logs.items())
            logging.info("  step %d of %d  %s", step, self.total_steps, shown)

    def on_train_end(self, logs: Logs | None = None) -> None:
        self.writer.flush()


class EarlyStopping(tf_keras.callbacks.Callback):
    """Evaluate on dev after every epoch and stop at the first one that is no better than the best before.

    The original asks whether the correlation has *not fallen*, and so stops as soon as it rises; here it stops when it
    no longer rises. Scores are kept beside the checkpoints, for a run that is resumed.
    """

    def __init__(
        self, step: tf.Variable, steps_per_epoch: int, evaluate: Evaluate, output_dir: pathlib.Path, writes: bool = True
    ):
        super().__init__()
        self.step, self.steps_per_epoch, self.evaluate, self.writes = step, steps_per_epoch, evaluate, writes
        self.path = output_dir / "early_stopping.json"
        self.seen: dict[str, float] = {}
        if self.path.exists():
            self.seen = read_json(self.path, dict[str, float], expected="dev scores by step", versioned=False)

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        if self.stops(self.model):
            self.model.stop_training = True

    def stops(self, model: SiameseBertFlow) -> bool:
        """Return True if this step ends an epoch with a dev score that is no better than the best before."""
        step = int(self.step)
        if step == 0 or step % self.steps_per_epoch:
            return False
        metrics = outside_of_strategies(lambda: self.evaluate(model))
        score = float(metrics["eval_pearsonr" if "eval_pearsonr" in metrics else "eval_accuracy"])
        if not np.isfinite(score):
            raise UserError(f"early_stopping: found a dev score of {score} at step {step}, expected a finite number")
        best = max((value for at, value in self.seen.items() if int(at) < step), default=float("-inf"))
        self.seen[str(step)] = score
        if self.writes:
            write_json(self.path, self.seen)
        logging.info("  dev score %.6f at step %d, best before %.6f", score, step, best)
        return score <= best


def outside_of_strategies(function: Callable[[], T]) -> T:
    """Return what `function` gives in another thread: Keras calls back in a strategy's scope, where no encoder runs."""
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


class StopOnSignal(tf_keras.callbacks.Callback):
    """Context and callback: SIGINT and SIGTERM end `fit` after the running step; `signal` is then their number."""

    def __init__(self) -> None:
        super().__init__()
        self.signal = 0

    def __enter__(self) -> "StopOnSignal":
        # Only the main thread can handle signals; Ray trains in another one.
        numbers = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        self._handlers = {number: signal.signal(number, self._note) for number in numbers}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        if self.signal:
            self.model.stop_training = True
