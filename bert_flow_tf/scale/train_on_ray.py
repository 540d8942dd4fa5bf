"""Workers in a Ray cluster that train one run together: Ray Train starts them, and starts all again when one has died.

Each is a process of its own, as on one machine: Ray Train calls its function in a thread, where no signal arrives.
"""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from bert_flow_tf.errors import ArgumentError, LostWorkerError, pip_install
from bert_flow_tf.runs.cluster import VARIABLE
from bert_flow_tf.scale.local_workers import (
    FINAL,
    LAST_LINES,
    NOTICE_WITHIN,
    end_with_parent,
    final_status,
    tell_of_restart,
    thread_variables,
)
from bert_flow_tf.scale.on_ray import connected

# Seconds between two messages of a worker, or of the command, to the board.
_EVERY = 0.5
# Seconds that Ray Train has to end when the command does.
_END_WITHIN = 20.0
_LAST_BYTES = 20_000


def train_on_ray(
    flags: Sequence[str], workers: int, address: str, *, max_restarts: int = 3, threads: int | None = None
) -> int:
    """As `local_workers.train_on_workers` of run_siamese with these flags, in the cluster at `address`, `host:port`.

    What the first worker prints goes to standard error. Its machines see the files under the same names.

    Raises:
      UserError: as `train_on_workers`; Ray is not installed, or there is no such cluster, or none that is so large.
      LostWorkerError: as `train_on_workers`.
    """
    with connected(address, cpus=0), tempfile.TemporaryDirectory(prefix="bert_flow_ray_") as folder:
        import ray

        try:
            from ray.train import FailureConfig, RunConfig, ScalingConfig, UserCallback
            from ray.train.tensorflow import TensorflowTrainer
        except ImportError as error:
            raise ArgumentError(f"ray: Ray Train is not installed: {pip_install('scale')}") from error

        class Failures(UserCallback):
            def after_exception(self, run_context: Any, worker_exceptions: Mapping[int, Exception]) -> None:
                ray.get(board.failed.remote([*worker_exceptions]))

        threads = _threads(workers, address, threads)
        board = ray.remote(num_cpus=0)(_Board).remote(workers)
        given = {"board": board, "flags": flags, "folder": os.getcwd(), "variables": thread_variables(threads)}
        trainer = TensorflowTrainer(
            _work,
            train_loop_config=given,
            scaling_config=ScalingConfig(
                num_workers=workers,
                use_gpu="GPU" in ray.cluster_resources(),
                resources_per_worker={"CPU": threads},
            ),
            run_config=RunConfig(
                # In which nothing but a marker is written: the run's checkpoints are its own.
                storage_path=folder,
                failure_config=FailureConfig(max_failures=max_restarts),
                callbacks=[Failures()],
            ),
        )
        try:
            return _Fitting(trainer, board, max_restarts).status()
        except ray.exceptions.RayError as error:
            reason = str(error).partition("\n")[0]
            raise LostWorkerError(
                f"ray: lost the cluster at {address} ({reason}); run the same command to go on"
            ) from error


def _threads(workers: int, address: str, threads: int | None) -> int:
    """Of each worker: what was asked for, or its share of the processors of a machine."""
    import ray

    machines = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    threads = threads or max(1, min(filter(None, machines), default=1) // math.ceil(workers / len(machines)))
    room = sum(processors // threads for processors in machines)
    if room < workers:
        raise ArgumentError(
            f"workers: found {workers} of {threads} threads, expected at most {room}, for which the cluster at "
            f"{address} has processors"
        )
    return threads


class _Board:
    """The actor through which the command and its workers talk."""

    def __init__(self, workers: int) -> None:
        self._signal = 0
        # What each worker printed last; of the first one, what the command has not shown.
        self._said = [b""] * workers
        self._failures: list[tuple[int, int | None, list[str]]] = []
        self._begin()

    def _begin(self) -> None:
        self._statuses: list[int | None] = [None] * len(self._said)
        self._is_begun = False

    def tell(self, worker: int, said: bytes, status: int | None) -> tuple[int, list[int | None]]:
        """From a worker: what it printed since the last time, and its status; gives its signal and all statuses."""
        self._is_begun = True
        self._statuses[worker] = status
        self._said[worker] += said
        if worker:
            self._said[worker] = self._said[worker][-_LAST_BYTES:]
        return self._signal, self._statuses

    def failed(self, workers: Sequence[int]) -> None:
        """From Ray Train: because of these workers an attempt has failed."""
        ended = {*workers} | {i for i, status in enumerate(self._statuses) if status}
        # One that noticed the end of another is not the cause.
        died = min(sorted(ended), key=lambda i: self._statuses[i] == LostWorkerError.status)
        self._failures.append((died, self._statuses[died], self._last_lines(died)))
        self._said[1:] = [b""] * (len(self._said) - 1)
        self._begin()

    def news(self, number: int) -> dict[str, Any]:
        """From the command, with a signal for the workers: gives what has come since."""
        self._signal = number
        news = {
            "said": self._said[0],
            "failures": self._failures,
            "statuses": self._statuses,
            "last_lines": [*map(self._last_lines, range(len(self._said)))],
            "is_begun": self._is_begun,
        }
        self._said[0], self._failures = b"", []
        return news

    def _last_lines(self, worker: int) -> list[str]:
        return self._said[worker].decode(errors="replace").splitlines()[-LAST_LINES:] if worker else []


def _work(given: Mapping[str, Any]) -> None:
    """A worker, in the thread that Ray Train has for it; an end that running again may mend is an error."""
    import ray

    worker = json.loads(os.environ[VARIABLE])["task"]["index"]
    board, asked, read, status = given["board"], 0, 0, None
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "bert_flow_tf.run_siamese", *given["flags"]],
            cwd=given["folder"],
            env=os.environ | given["variables"],
            stdout=log,
            stderr=log,
            # What has lost its launcher must not be in the way of the next attempt.
            preexec_fn=end_with_parent,
        )
        while status is None:
            time.sleep(_EVERY)
            status = process.poll()
            said = os.pread(log.fileno(), os.fstat(log.fileno()).st_size - read, read)
            read += len(said)
            number, statuses = ray.get(board.tell.remote(worker, said, status))
            if number != asked and status is None:
                process.send_signal(number)
                asked = number
    ends = time.monotonic() + NOTICE_WITHIN
    while None in statuses and time.monotonic() < ends:
        time.sleep(_EVERY)
        _, statuses = ray.get(board.tell.remote(worker, b"", status))
    # An end that the command no longer waits for is no failure, after which all would start again.
    if status and asked != signal.SIGKILL and set(statuses).isdisjoint(FINAL):
        raise RuntimeError(f"worker {worker} ended with status {status}")


class _Fitting:
    """A trainer that fits, in a thread, and the command that waits for it."""

    def __init__(self, trainer: Any, board: Any, max_restarts: int) -> None:
        self._trainer, self._board, self._max_restarts = trainer, board, max_restarts
        self._signals: list[int] = []
        self._error: BaseException | None = None

    def status(self) -> int:
        """The status of the command when it ends, see `train_on_ray`."""
        import ray

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        handlers = {number: signal.signal(number, self._note) for number in numbers}
        thread = threading.Thread(target=self._fit, daemon=True)
        thread.start()
        restarts = 0
        try:
            while True:
                is_over = not thread.is_alive()
                news = ray.get(self._board.news.remote(self._signals[-1] if self._signals else 0))
                sys.stderr.write(news["said"].decode(errors="replace"))
                sys.stderr.flush()
                for worker, status, lines in news["failures"]:
                    print(*lines, sep="\n", end="\n" if lines else "", file=sys.stderr)
                    tell_of_restart(worker, status, restarts, self._max_restarts)
                    restarts += 1
                if is_over:
                    break
                # Asked once more, or before there is a worker that could save.
                if self._signals[1:] or (self._signals and not news["is_begun"]):
                    raise KeyboardInterrupt
                time.sleep(_EVERY)
        finally:
            # A thread that still waits for Ray when its connection ends would end this process, with status 1.
            with contextlib.suppress(ray.exceptions.RayError):
                self._board.news.remote(signal.SIGKILL)
            thread.join(_END_WITHIN)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self._error is not None:
            raise self._error
        status = final_status(news["statuses"], news["last_lines"])
        assert status is not None
        return status

    def _fit(self) -> None:
        try:
            self._trainer.fit()
        except Exception as error:
            self._error = error

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(signal.SIGTERM if number == signal.SIGHUP else number)
