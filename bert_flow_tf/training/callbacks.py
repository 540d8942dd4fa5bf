"""What happens between the steps of training: checkpoints, summaries, progress, early stopping, signals."""

import concurrent.futures
import contextlib
import pathlib
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

import msgspec
import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging

from bert_flow_tf.errors import UserError
from bert_flow_tf.files.checkpoints import save_checkpoint
from bert_flow_tf.files.json_files import read_json, write_json
from bert_flow_tf.model.siamese import SiameseBertFlow
from bert_flow_tf.runs.folder import CHECKPOINT_NAME, KEEP_CHECKPOINT_MAX
from bert_flow_tf.runs.record import LearningCurve
from bert_flow_tf.training.workers import Workers

# Of a learning curve.
_POINTS = 100
_SIGNALS = {signal.SIGINT, signal.SIGTERM}
# Function of the model that gives its metrics on dev, by name.
Evaluate = Callable[[SiameseBertFlow], Mapping[str, float | np.floating]]


class Saver(tf_keras.callbacks.Callback):
    """Counts steps and saves a checkpoint every so many; what is not finite ends training, before it can be saved.

    Of several workers all do so, and the chief alone writes.
    """

    def __init__(
        self,
        learned: Sequence[tf.Variable],
        step: tf.Variable,
        manager: tf.train.CheckpointManager,
        every: int,
        before_saving: Callable[[], object] = lambda: None,
        writes: bool = True,
    ):
        super().__init__()
        self.learned = learned
        self.step = step
        self.manager = manager
        self.every = every
        self.before_saving = before_saving
        self.writes = writes
        # Training begins with a checkpoint, its own or the one that it resumes from.
        self.saved_at = int(step)

    def save(self) -> None:
        """Saves the state at this step; a variable that is not finite is a `UserError`."""
        # A step's loss is that of the variables before it: they may be lost while the loss is still finite.
        for variable in self.learned:
            if not np.isfinite(variable.numpy()).all():
                self._refuse(f"{variable.name} with values that are not finite, expected finite ones")
        self.before_saving()
        if self.writes:
            save_checkpoint(self.manager, int(self.step))
        self.saved_at = int(self.step)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any]) -> None:
        self.step.assign_add(1)
        for name, value in logs.items():
            if not np.isfinite(value):
                self._refuse(f"{name} {value}, expected a finite number")
        if int(self.step) % self.every == 0:
            self.save()

    def _refuse(self, found: str) -> NoReturn:
        # Not the manager's: it knows those alone that it wrote.
        good = f"{self.manager.directory}/{CHECKPOINT_NAME}-{self.saved_at}"
        raise UserError(f"step {int(self.step)}: found {found}; the last good state is {good}")


class Progress(tf_keras.callbacks.Callback):
    """Writes losses and gradient norms for TensorBoard every so many steps, and logs about ten lines without a bar."""

    def __init__(self, step: tf.Variable, total_steps: int, output_dir: pathlib.Path, every: int, has_bar: bool):
        super().__init__()
        self.step = step
        self.total_steps = total_steps
        self.every = every
        self.has_bar = has_bar
        self.writer = tf.summary.create_file_writer(str(output_dir))

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any]) -> None:
        step = int(self.step)
        if step % self.every == 0:
            with self.writer.as_default(step=step):
                for name, value in logs.items():
                    tf.summary.scalar(name, value)
        if not self.has_bar and (step % max(1, self.total_steps // 10) == 0 or step == self.total_steps):
            shown = "  ".join(f"{name} {value:.4f}" for name, value in logs.items())
            logging.info("  step %d of %d  %s", step, self.total_steps, shown)

    def on_train_end(self, logs: Mapping[str, Any]) -> None:
        self.writer.flush()


class _Begun(msgspec.Struct):
    """Number of steps since the last point of a curve, and the sum of each of their losses."""

    steps: int
    sums: list[float]


class _CurveFile(msgspec.Struct):
    """A curve's points so far, and what was `_Begun` at each of the last steps that it was saved at."""

    curve: LearningCurve
    begun: dict[str, _Begun]


class Curve(tf_keras.callbacks.Callback):
    """Keeps the learning curve of a run: 100 points, each the mean of the losses since the one before.

    It is kept beside the checkpoints, for a run that is resumed; `save` comes before each of them. In the list of
    callbacks it stands before `Saver`, which counts the step.
    """

    def __init__(self, losses: Sequence[str], step: tf.Variable, total_steps: int, output_dir: pathlib.Path):
        super().__init__()
        self.step = step
        self.every = -(-total_steps // _POINTS)
        self.path = output_dir / "learning_curve.json"
        self.steps: list[int] = []
        self.losses: dict[str, list[float]] = {name: [] for name in losses}
        self.begun = _Begun(0, [0.0] * len(losses))
        self.saved: dict[str, _Begun] = {}
        if self.path.exists():
            self._resume(read_json(self.path, _CurveFile, expected="a learning curve", versioned=False))

    def _resume(self, kept: _CurveFile) -> None:
        # It may have been saved for a checkpoint that the process was killed in.
        self.steps = [at for at in kept.curve.steps if at <= int(self.step)]
        self.losses = {name: kept.curve.losses[name][: len(self.steps)] for name in self.losses}
        self.saved = {at: begun for at, begun in kept.begun.items() if int(at) <= int(self.step)}
        self.begun = self.saved.get(str(int(self.step)), self.begun)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any]) -> None:
        sums = [total + float(logs[name]) for total, name in zip(self.begun.sums, self.losses, strict=True)]
        self.begun = _Begun(self.begun.steps + 1, sums)
        if (at := int(self.step) + 1) % self.every == 0:
            self._add_point(at)

    def _add_point(self, at: int) -> None:
        self.steps.append(at)
        for values, total in zip(self.losses.values(), self.begun.sums, strict=True):
            # Six digits are more than a curve shows.
            values.append(float(f"{total / self.begun.steps:.6g}"))
        self.begun = _Begun(0, [0.0] * len(self.losses))

    def save(self) -> None:
        """Writes the curve so far."""
        self.saved[str(int(self.step))] = self.begun
        # The step before, too: this checkpoint may not come to be.
        self.saved = dict(list(self.saved.items())[-KEEP_CHECKPOINT_MAX - 1 :])
        write_json(self.path, _CurveFile(LearningCurve(steps=self.steps, losses=self.losses), self.saved))

    def whole(self) -> LearningCurve:
        """The curve up to this step, the last one."""
        if self.begun.steps:
            self._add_point(int(self.step))
        return LearningCurve(steps=self.steps, losses=self.losses)


class EarlyStopping(tf_keras.callbacks.Callback):
    """Evaluates on dev after every epoch and stops at the first one that is no better than the best before.

    The original asks whether the correlation has *not fallen*, and so stops as soon as it rises; here it stops when it
    no longer rises. The best value so far is kept beside the checkpoints, for a run that is resumed. Of several workers
    the chief evaluates.
    """

    def __init__(
        self,
        step: tf.Variable,
        steps_per_epoch: int,
        evaluate: Evaluate,
        output_dir: pathlib.Path,
        workers: Workers | None = None,
    ):
        super().__init__()
        self.workers = workers or Workers()
        self.step = step
        self.steps_per_epoch = steps_per_epoch
        self.evaluate = evaluate
        self.path = output_dir / "early_stopping.json"
        self.seen: dict[str, float] = {}
        if self.path.exists():
            self.seen = read_json(self.path, dict[str, float], expected="dev scores by step", versioned=False)

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any]) -> None:
        if self.stops(self.model):
            self.model.stop_training = True

    def stops(self, model: SiameseBertFlow) -> bool:
        """Whether this step ends an epoch with a dev score that is no better than the best before."""
        step = int(self.step)
        if step == 0 or step % self.steps_per_epoch:
            return False
        return bool(self.workers.of_chief(lambda: self._is_no_better(model, step)))

    def _is_no_better(self, model: SiameseBertFlow, step: int) -> bool:
        # Keras calls in the strategy's scope, where an encoder in training cannot be traced; a thread is outside of it.
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            metrics = thread.submit(self.evaluate, model).result()
        score = float(metrics["eval_pearsonr" if "eval_pearsonr" in metrics else "eval_accuracy"])
        if not np.isfinite(score):
            raise UserError(f"early_stopping: found a dev score of {score} at step {step}, expected a finite number")
        best = max((value for at, value in self.seen.items() if int(at) < step), default=float("-inf"))
        self.seen[str(step)] = score
        write_json(self.path, self.seen)
        logging.info("  dev score %.6f at step %d, best before %.6f", score, step, best)
        return score <= best


class StopOnSignal(tf_keras.callbacks.Callback):
    """Context and callback: SIGINT and SIGTERM end `fit` after the running step; `signal` is then their number.

    Of several workers one that gets them ends `fit` in all, after the step that follows.
    """

    def __init__(self, workers: Workers | None = None) -> None:
        super().__init__()
        self.workers = workers or Workers()
        self.signal = 0
        self._has_come = False
        self._pipe: tuple[socket.socket, ...] = ()

    def __enter__(self) -> "StopOnSignal":
        # Ray's workers train in another thread, which gets no signals.
        if threading.current_thread() is not threading.main_thread():
            return self
        self._handlers = {number: signal.signal(number, self._note) for number in _SIGNALS}
        self._pipe = socket.socketpair()
        for end in self._pipe:
            end.setblocking(False)
        self._descriptor = signal.set_wakeup_fd(self._pipe[1].fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *exception: object) -> None:
        if not self._pipe:
            return
        signal.set_wakeup_fd(self._descriptor)
        for end in self._pipe:
            end.close()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def has_come(self) -> bool:
        """Whether one of the signals came, for another thread: while the main one waits for it, Python notes none."""
        if self._pipe:
            with contextlib.suppress(BlockingIOError):
                self._has_come |= not _SIGNALS.isdisjoint(self._pipe[0].recv(4096))
        return self._has_come

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any]) -> None:
        if self.workers.want_to_end(bool(self.signal)):
            self.model.stop_training = True
        self.workers.has_advanced()
