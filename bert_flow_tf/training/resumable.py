"""A resumable training run: its checks, checkpoints, steps and results."""

import pathlib
import re
import resource
import time
from collections.abc import Callable, Sequence

import tensorflow as tf
import tf_keras

from bert_flow_tf.common.json_files import read_json, write_json
from bert_flow_tf.training import callbacks
from bert_flow_tf.training.devices import Workers
from bert_flow_tf.training.run_folder import (
    CHECKPOINT_NAME,
    TRAIN_RESULTS_FILE,
    FinishedRun,
    check_run,
    start_run,
)
from bert_flow_tf.training.run_records import RunConfig, StageCost, TrainingResults, model_at


class Stages:
    """Measure wall time and peak memory of each stage."""

    def __init__(self) -> None:
        self.ended: dict[str, StageCost] = {}
        self._since = time.monotonic()

    def end(self, name: str) -> None:
        now = time.monotonic()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        self.ended[name] = StageCost(seconds=round(now - self._since, 3), peak_memory_mib=peak)
        self._since = now


class ResumableRun:
    """A training run in a folder, which the same command resumes.

    All workers call the same methods, in the order of this class. They must be able to read the
    folder, which only the chief writes.

    Args:
      stages: the cost of what the caller has done since the start.
      overwrite: True to delete an earlier run in the folder.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        config: RunConfig,
        workers: Workers,
        stages: Stages,
        *,
        overwrite: bool,
    ) -> None:
        self.folder = folder
        self.config = config
        self.workers = workers
        self.stages = stages
        self._overwrite = overwrite
        self._resumes = False

    def check(self, missing_outputs: Sequence[pathlib.Path] = ()) -> None:
        """Raise an error unless the run can start or resume, see `check_run`.

        Call this before the model is built, which takes seconds.
        """
        finished: FinishedRun | None = None
        if self.workers.is_chief:
            try:
                self._resumes = check_run(
                    self.folder, self.config, self._overwrite, missing_outputs
                )
            except FinishedRun as error:
                finished = error
        if self.workers.from_chief(int(finished is not None)):
            raise finished or FinishedRun(f"{self.folder}: found a finished run")

    def open(self, *, kept: int, replaced: re.Pattern[str] | None = None, **parts: object) -> None:
        """Write the `config.json` of a new run; restore the last checkpoint.

        Args:
          kept: number of checkpoints to keep.
          replaced: names of results that `overwrite` deletes in a folder without a run.
          **parts: what checkpoints hold, see `callbacks.Checkpoints`.
        """
        is_chief = self.workers.is_chief
        if is_chief and not self._resumes:
            start_run(self.folder, self.config, self._overwrite, replaced)
        self.checkpoints = callbacks.Checkpoints(self.folder, kept, **parts)
        self.last_checkpoint = self.checkpoints.restore() if is_chief else None
        self.stages.end("load")

    @property
    def step(self) -> int:
        return int(self.checkpoints.step)

    def is_finished(self) -> bool:
        """Return True if the run was trained before."""
        return bool(self.workers.from_chief(int((self.folder / TRAIN_RESULTS_FILE).exists())))

    def begin(self, initialize: Callable[[], None] | None = None) -> None:
        """Write the first checkpoint; let all workers start from the last one.

        `initialize` gives the chief's model its first state.
        """
        if self.workers.is_chief and not self.last_checkpoint:
            if initialize is not None:
                initialize()
            self.checkpoints.save()
        start_step = self.workers.from_chief(self.step)
        if not self.workers.is_chief:
            self.checkpoints.restore(str(self.folder / f"{CHECKPOINT_NAME}-{start_step}"))

    def fit(
        self,
        model: tf_keras.Model,
        batches: tf.data.Dataset,
        total_steps: int,
        *,
        save_every: int,
        others: Sequence[tf_keras.callbacks.Callback],
    ) -> None:
        """Train the remaining steps; save the state every `save_every` steps.

        Args:
          model: a model with `learned_variables`.
          batches: endless batches, from the run's step on.
          others: callbacks besides those that count, save and stop.

        Raises:
          UserError: a loss, a gradient or a variable is not finite.
          KeyboardInterrupt: SIGINT or SIGTERM came; the state has been saved.
        """
        steps = callbacks.Steps(
            self.checkpoints,
            save_every,
            model.learned_variables,
            writes=self.workers.is_chief,
        )
        callbacks.fit(model, self.workers.distributed(batches), total_steps, steps, others)

    def finish(self, dev_losses: dict[int, float] | None = None) -> None:
        """Write the chief's `train_results.json`."""
        self.stages.end("train")
        if not self.workers.is_chief:
            return
        self.last_checkpoint = self.checkpoints.latest
        results = TrainingResults(
            made_by=self.config.made_by,
            model=model_at(self.config, str(self.last_checkpoint)),
            steps=self.step,
            stages=self.stages.ended,
            dev_losses=dev_losses or {},
        )
        write_json(self.folder / TRAIN_RESULTS_FILE, results)

    def results(self) -> TrainingResults:
        """Return the results of a finished run."""
        path = self.folder / TRAIN_RESULTS_FILE
        return read_json(path, TrainingResults, expected="a finished run's results")
