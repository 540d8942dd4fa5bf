"""What happens between the steps of training: checkpoints, summaries, progress, early stopping, signals."""

import json
import pathlib
import signal

import numpy as np
import tensorflow as tf
import tf_keras
from absl import logging

from bert_flow_tf.atomic import write_atomically
from bert_flow_tf.errors import UserError


class StopIfNotFinite(tf_keras.callbacks.Callback):
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


class Saver(tf_keras.callbacks.Callback):
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


class Summaries(tf_keras.callbacks.Callback):
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


class LogProgress(tf_keras.callbacks.Callback):
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


class EarlyStopping(tf_keras.callbacks.Callback):
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
        write_atomically(self.path, json.dumps(self.seen) + "\n")
        logging.info("  dev score %.6f at step %d, best before %.6f", score, step, best)
        return score <= best


class StopOnSignal(tf_keras.callbacks.Callback):
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
