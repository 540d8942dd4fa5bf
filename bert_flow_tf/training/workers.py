"""The processes that train one run together: what they agree on, and how each notices that another has ended."""

import hashlib
import math
import os
import pathlib
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context  # the public API does not ask for the health of a peer

from bert_flow_tf.errors import LostWorkerError, UserError
from bert_flow_tf.runs.cluster import Cluster
from bert_flow_tf.runs.folder import place_of

# Seconds between two looks at the others, and until one that does not answer is asked once more.
_LOOK_EVERY = 3.0
_ANSWER_WITHIN = 4.0
# Seconds within which a file of the chief's is seen by the others.
_SEEN_WITHIN = 5.0
# What TensorFlow raises in one worker where another has ended.
_LOSSES = (
    *(tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.InternalError),
    *(tf.errors.FailedPreconditionError, tf.errors.DeadlineExceededError),
)


class Workers:
    """The workers of a run, of which this process is one; alone, it agrees with itself at once.

    A context in which this process ends with a `LostWorkerError` once another worker has ended, does not answer, or no
    step has been taken for `timeout` seconds: raised in the main thread where that waits for the other, else printed by
    a thread, which ends the process as it is.
    """

    def __init__(self, cluster: Cluster | None = None, timeout: float = math.inf) -> None:
        self.cluster = cluster
        self.timeout = timeout
        self._strategy: tf.distribute.Strategy | None = None
        self._is_over = threading.Event()
        self._patience = math.inf
        self._vote: tf.Variable | None = None
        self._votes: tf.Variable | None = None

    @property
    def count(self) -> int:
        return 1 if self.cluster is None else len(self.cluster.addresses)

    @property
    def index(self) -> int:
        return 0 if self.cluster is None else self.cluster.index

    @property
    def is_chief(self) -> bool:
        return self.index == 0

    def rows(self, batch_size: int) -> slice:
        """This worker's rows of a global batch; the first workers have one more where it does not divide."""
        least, more = divmod(batch_size, self.count)
        start = self.index * least + min(self.index, more)
        return slice(start, start + least + (self.index < more))

    def __enter__(self) -> "Workers":
        if self.cluster is not None:
            self._thread = threading.Thread(target=self._look_after, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self.cluster is None:
            return
        self._is_over.set()
        self._thread.join()
        if isinstance(error, _LOSSES):
            lost = self._unhealthy(within=4 * _ANSWER_WITHIN)
            if lost is not None:
                raise LostWorkerError(self._line(lost)) from error

    def joined(self, strategy: tf.distribute.Strategy, run_dir: pathlib.Path) -> None:
        """Tells that all workers are there, with their strategy.

        Raises:
          UserError: they do not share the folder of `run_dir`.
        """
        if self.cluster is None:
            return
        self._strategy = strategy
        self._check_shared(run_dir)

    def gather(self, values: Any) -> np.ndarray:
        """int64 [workers, ...]: what each worker calls this with, a number or an array of the same shape in all."""
        values = np.asarray(values, np.int64)
        if self._strategy is None:
            return values[np.newaxis]
        table = np.zeros((self.count, *values.shape), np.int64)
        table[self.index] = values
        return self._strategy.reduce(tf.distribute.ReduceOp.SUM, tf.constant(table), axis=None).numpy()

    def of_chief(self, work: Callable[[], int | None]) -> int:
        """What `work()` gives in the chief, which alone calls it; 0 for None.

        Raises:
          UserError, KeyboardInterrupt: it did so in the chief, or, in the others, something else.
        """
        if self.cluster is None:
            return work() or 0
        patience, self._patience = self._patience, math.inf
        try:
            status, value = self._tried(work) if self.is_chief else (0, 0)
            status, value = self.gather([status, value])[0]
        finally:
            self._patience = math.inf
        if status == 130:
            raise KeyboardInterrupt
        if status:
            raise UserError(f"{self.cluster.worker(0)} ended with an error: see what it printed")
        if patience < math.inf:
            self.has_advanced()
        return int(value)

    def _tried(self, work: Callable[[], int | None]) -> tuple[int, int]:
        try:
            return 0, work() or 0
        except tf.errors.OpError:
            raise
        except BaseException as error:
            self.gather([130 if isinstance(error, KeyboardInterrupt) else 1, 0])
            raise

    def check_same(self, settings: Mapping[str, Any]) -> None:
        """Raises `UserError`, in all workers, unless the values of these names are the same in all."""
        names = sorted(settings)
        digests = [hashlib.sha256(repr(settings[name]).encode()).digest()[:7] for name in names]
        table = self.gather([int.from_bytes(digest, "big") for digest in digests])
        for i, row in enumerate(table):
            if different := [name for name, ours, theirs in zip(names, row, table[0], strict=True) if ours != theirs]:
                assert self.cluster is not None
                raise UserError(
                    f"{self.cluster.worker(i)}: found another {', '.join(different)} than that of "
                    f"{self.cluster.worker(0)}, expected the same flags, data and encoder"
                )

    def has_advanced(self) -> None:
        """Tells that this worker gets on; from here to the next time no more than `timeout` seconds may pass."""
        self._patience = time.monotonic() + self.timeout

    def may_take_its_time(self) -> None:
        """Tells that from here on there are no steps that could be waited for."""
        self._patience = math.inf

    def let_vote(self, model: Any) -> None:
        """Lets each step of a Keras model, before it is traced, count the workers that want it to be the last one."""
        strategy = self._strategy
        if strategy is None:
            return
        self._vote, self._votes = tf.Variable(0.0, trainable=False), tf.Variable(0.0, trainable=False)
        vote, votes, train_step = self._vote, self._votes, model.train_step

        @tf.autograph.experimental.do_not_convert
        def step_and_count(data: Any) -> Any:
            votes.assign(tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.identity(vote)))
            return train_step(data)

        model.train_step = step_and_count

    def want_to_end(self, wanted: bool) -> bool:
        """Whether training ends after the step that was taken; all workers get the same answer, a step later."""
        if self._vote is None or self._votes is None:
            return wanted
        if wanted:
            self._vote.assign(1.0)
        return bool(self._votes.numpy() > 0)

    def leave(self) -> None:
        """Waits for all: the last thing before this process ends, which none of the others takes for a loss."""
        if self._strategy is not None:
            self._is_over.set()
            self._thread.join()
            self.gather(0)

    def distributed(self, batches: tf.data.Dataset) -> Any:
        """This worker's parts of the batches, as `fit` takes them from each."""
        if self._strategy is None:
            return batches
        # That the steps end before the data is known. Where it may not be, TensorFlow asks all workers in every step.
        endless = batches.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        return self._strategy.distribute_datasets_from_function(lambda _: endless)

    def _check_shared(self, run_dir: pathlib.Path) -> None:
        """Raises `UserError` in all workers unless each sees a file that the chief makes beside its run's folder."""
        assert self.cluster is not None
        file = place_of(run_dir).with_name(f".{run_dir.name}.{int(self.gather(secrets.randbits(32))[0]):08x}.tmp")
        self.of_chief(file.touch)
        ends = time.monotonic() + _SEEN_WITHIN
        while not (sees := file.exists()) and time.monotonic() < ends:
            time.sleep(0.1)
        seen = self.gather(sees)
        if self.is_chief:
            file.unlink()
        if blind := [self.cluster.worker(i) for i in range(self.count) if not seen[i]]:
            raise UserError(
                f"{run_dir}: found a folder that {', '.join(blind)} cannot see on {self.cluster.worker(0)}, expected "
                "one on a file system that all workers share"
            )

    def _look_after(self) -> None:
        while not self._is_over.wait(_LOOK_EVERY):
            if time.monotonic() > self._patience:
                self._end(f"found no step in {self.timeout:g} seconds, expected one (--worker_timeout)")
            lost = None if self._strategy is None else self._unhealthy()
            if lost is not None and not self._is_over.is_set():
                self._end(self._line(lost))

    def _end(self, line: str) -> NoReturn:
        # The main thread waits in TensorFlow, which no exception reaches.
        print(f"error: {line}", file=sys.stderr, flush=True)
        os._exit(LostWorkerError.status)

    def _line(self, lost: int) -> str:
        assert self.cluster is not None
        return (
            f"{self.cluster.worker(lost)} has ended or does not answer, expected it to train with this one; start all "
            "workers again to go on from the last checkpoint"
        )

    def _unhealthy(self, within: float = 0.0) -> int | None:
        """Number of a worker that has ended or does not answer, if there is one that this one looks after.

        These are the chief and the next one. Within `within` seconds, in which news of an end may come before the end
        can be seen, all are looked at.
        """
        assert self.cluster is not None
        ends = time.monotonic() + within
        while True:
            peers = {0, (self.index + 1) % self.count} if not within else set(range(self.count))
            for peer in sorted(peers - {self.index}):
                if not self._answers(peer) and not self._answers(peer):
                    return peer
            if time.monotonic() >= ends:
                return None
            time.sleep(0.1)

    def _answers(self, peer: int) -> bool:
        assert self.cluster is not None
        try:
            context.context().check_collective_ops_peer_health(
                self.cluster.names[peer], timeout_in_ms=int(_ANSWER_WITHIN * 1000)
            )
        except tf.errors.OpError:
            return False
        return True
