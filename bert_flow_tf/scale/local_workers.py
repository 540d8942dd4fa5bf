"""Processes on this machine that train one run together, started again from the last checkpoint when one has died."""

import contextlib
import ctypes
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from types import FrameType
from typing import IO

from bert_flow_tf.errors import LostWorkerError, UserError
from bert_flow_tf.runs.cluster import VARIABLE

# Seconds that workers have to notice that another one has ended.
NOTICE_WITHIN = 15.0
# Of a worker that failed, shown.
LAST_LINES = 20
# Statuses that running again does not change: a mistake, and an end that was asked for.
FINAL = (2, 130)
_PR_SET_PDEATHSIG = 1


def train_on_workers(command: Sequence[str], workers: int, *, max_restarts: int = 3, threads: int | None = None) -> int:
    """Status of `command`, run in that many processes whose TF_CONFIG names all of them, on 127.0.0.1.

    The first one's output is this process's; of the others, the end is shown where they fail. When one dies, all are
    ended and started again. What asks this process to end asks them.

    Args:
      threads: of each; by default this machine's processors are shared out.

    Raises:
      LostWorkerError: a worker has died once more than `max_restarts` times.
      UserError: a worker other than the first has refused the command.
    """
    threads = threads or max(1, len(os.sched_getaffinity(0)) // workers)
    environment = os.environ | thread_variables(threads)
    for restarts in range(max_restarts + 1):
        with _Attempt(command, workers, environment) as attempt:
            statuses = attempt.wait()
        if attempt.signal and any(statuses):
            return 130 if 130 in statuses else 128 + attempt.signal
        status = final_status(statuses, attempt.last_lines)
        if status is not None:
            return status
        died = attempt.first_to_fail
        for line in attempt.last_lines[died] if statuses[died] > 0 else []:
            print(line, file=sys.stderr)
        tell_of_restart(died, statuses[died], restarts, max_restarts)
    raise AssertionError("the last restart raises")


def thread_variables(threads: int) -> dict[str, str]:
    """The environment variables by which TensorFlow has that many threads."""
    return {f"TF_NUM_{kind}_THREADS": str(threads) for kind in ("INTRAOP", "INTEROP")}


def final_status(statuses: Sequence[int | None], last_lines: Sequence[Sequence[str]]) -> int | None:
    """The status that all workers together end with; None where they should start again.

    Raises:
      UserError: a worker other than the first has refused the command, whose last line says why.
    """
    final = [status for status in statuses if status in FINAL]
    if statuses[0] not in FINAL and 2 in final:
        worker = statuses.index(2)
        raise UserError(f"worker {worker}: {last_lines[worker][-1].removeprefix('error: ')}")
    return max(final) if final else None if any(status != 0 for status in statuses) else 0


def tell_of_restart(worker: int, status: int | None, restarts: int, max_restarts: int) -> None:
    """Says that all workers start again after one of this status, None where it is not known, has ended.

    Raises:
      LostWorkerError: they have done so `max_restarts` times.
    """
    if status is None:
        how = "was lost"
    else:
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    if restarts >= max_restarts:
        raise LostWorkerError(
            f"worker {worker} {how} after {max_restarts} restarts, expected no more (run the same command to go on)"
        )
    logging.warning("worker %d %s: all workers start again, %d of %d", worker, how, restarts + 1, max_restarts)


class _Attempt:
    """The processes of one attempt, as a context that ends what is left of them."""

    def __init__(self, command: Sequence[str], workers: int, environment: dict[str, str]) -> None:
        self.signal = 0
        self.first_to_fail = 0
        self.last_lines: list[list[str]] = []
        self._command, self._environment = command, environment
        self._addresses = _free_addresses(workers)
        self._processes: list[subprocess.Popen] = []
        self._logs: list[IO[bytes] | None] = []

    def __enter__(self) -> "_Attempt":
        self._outputs = contextlib.ExitStack()
        self._handlers = {
            number: signal.signal(number, self._pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        for i in range(len(self._addresses)):
            task = {"cluster": {"worker": self._addresses}, "task": {"type": "worker", "index": i}}
            # The first one's is this process's own; a file has no name that could be left.
            output = self._outputs.enter_context(tempfile.TemporaryFile()) if i else None
            self._logs.append(output)
            self._processes.append(
                subprocess.Popen(
                    self._command,
                    env=self._environment | {VARIABLE: json.dumps(task)},
                    stdout=output,
                    stderr=output,
                    # In a session of its own: what the terminal sends reaches it once, through here.
                    start_new_session=True,
                    # By SIGKILL: at SIGTERM it would save a checkpoint more than a run that nobody interrupts.
                    preexec_fn=end_with_parent,
                )
            )
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._outputs.close()

    def wait(self) -> list[int]:
        """The statuses of all processes; negative for a signal. Those that outlive another one's failure are killed."""
        ends = None
        while running := [process for process in self._processes if process.poll() is None]:
            failed = [i for i, process in enumerate(self._processes) if process.returncode]
            if failed and ends is None:
                self.first_to_fail = failed[0]
                ends = time.monotonic() + NOTICE_WITHIN
            if ends is not None and time.monotonic() > ends and not self.signal:
                for process in running:
                    process.kill()
            time.sleep(0.1)
        statuses = [process.returncode for process in self._processes]
        # One that noticed the end of another may itself be seen before that one.
        self.first_to_fail = min(
            (i for i, status in enumerate(statuses) if status),
            key=lambda i: (statuses[i] == LostWorkerError.status, i != self.first_to_fail),
            default=0,
        )
        for log in self._logs:
            lines = []
            if log is not None:
                log.seek(0)
                lines = log.read().decode(errors="replace").splitlines()
            self.last_lines.append(lines[-LAST_LINES:])
        return statuses

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        for process in self._processes:
            process.send_signal(signal.SIGTERM if number == signal.SIGHUP else number)


# Loaded before a process is forked.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


def end_with_parent() -> None:
    """`preexec_fn` of a process that, on Linux, is killed when the thread that started it has ended."""
    # A thread of Ray's has signals blocked.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if _PRCTL is not None:
        _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_addresses(count: int) -> list[str]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
