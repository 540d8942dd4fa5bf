"""What happens between the steps of training: checkpoints, summaries, progress, early stopping, signals."""

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
from bert_flow_tf.files.checkpoints import save_checkpoint
from bert_flow_tf.files.json_files import read_json, write_json
from bert_flow_tf.model.siamese import SiameseBertFlow
from bert_flow_tf.runs.folder import CHECKPOINT_NAME

# Function of the model that gives its metrics on dev, by name.
Evaluate = Callable[[SiameseBertFlow], Mapping[str, float | np.floating]]
Logs = Mapping[str, float]
T = TypeVar("T")


class Saver(tf_keras.callbacks.Callback):
    """Count steps and save a checkpoint every so many; end training before anything that is not finite is saved.

    Args:
      learned: the variables that training changes.
      writes: False for workers other than the chief, which only check.
    """

    def __init__(
        self,
        learned: Sequence[tf.Variable],
        step: tf.Variable,
        manager: tf.train.CheckpointManager,
        every: int,
        writes: bool = True,
    ):
        super().__init__()
        self.learned, self.step, self.manager, self.every, self.writes = learned, step, manager, every, writes
        # Training begins with a checkpoint, its own or the one that it resumes from.
        self.saved_at = int(step)

    def save(self) -> None:
        """Save the state at this step, unless it is saved; a variable that is not finite is a `UserError`."""
        if self.saved_at == int(self.step):
            return
        # A step's loss is that of the variables before it: they may be lost while the loss is still finite.
        for variable in self.learned:
            if not np.isfinite(variable.numpy()).all():
                self._stop(f"{variable.name} with values that are not finite, expected finite ones")
        if self.writes:
            save_checkpoint(self.manager, int(self.step))
        self.saved_at = int(self.step)

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        self.step.assign_add(1)
        for name, value in logs.items():
            if not np.isfinite(value):
                self._stop(f"{name} {value}, expected a finite number")
        if int(self.step) % self.every == 0:
            self.save()

    def _stop(self, found: str) -> NoReturn:
        good = f"{self.manager.directory}/{CHECKPOINT_NAME}-{self.saved_at}"
        raise UserError(f"step {int(self.step)}: found {found}; the last good state is {good}")


class Progress(tf_keras.callbacks.Callback):
    """Write losses and gradient norms for TensorBoard every so many steps; log about ten lines where there is no bar.

    Attributes:
      writer: of TensorBoard's events.
    """

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
