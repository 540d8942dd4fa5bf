"""Time processes in turn, whole or as workers that answer requests."""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).parents[1]


class Side(NamedTuple):
    """One side of a comparison: a Python and its environment variables."""

    python: str
    environment: dict[str, str]

    @classmethod
    def of(cls, checkout: pathlib.Path, modules: pathlib.Path) -> "Side":
        """Return the side of a checkout, with its `.venv` if any."""
        python = checkout / ".venv" / "bin" / "python"
        paths = {"PYTHONPATH": f"{modules}:{checkout}", "TF_CPP_MIN_LOG_LEVEL": "3"}
        return cls(str(python) if python.exists() else sys.executable, os.environ | paths)

    def run(self, *arguments: object, **variables: str) -> dict[str, Any]:
        """Run Python with these arguments; return its figures.

        They are `seconds`, `seconds_to_output`, `peak_memory_mib` and `output`.
        On Linux, the peak is at least the parent's, so the caller must not load TensorFlow.

        Raises:
          RuntimeError: the process failed; the message ends with the last line of its stderr.
        """
        command = [self.python, *map(str, arguments)]
        with tempfile.TemporaryFile() as messages:
            started = time.perf_counter()
            environment = self.environment | variables
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=messages, env=environment
            )
            first_line = process.stdout.readline()
            to_output = time.perf_counter() - started
            output = first_line + process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - started
            # Popen did not wait for the process, so it does not know the status.
            process.returncode = os.waitstatus_to_exitcode(status)
            if status:
                messages.seek(0)
                lines = messages.read().decode(errors="replace").strip().splitlines() or [
                    "no message"
                ]
                raise RuntimeError(
                    f"{' '.join(command[:3])} ended with status {process.returncode}: {lines[-1]}"
                )
        memory = usage.ru_maxrss / 1024
        return {
            "seconds": seconds,
            "seconds_to_output": to_output,
            "peak_memory_mib": memory,
            "output": output.decode(),
        }

    @contextlib.contextmanager
    def worker(self, module: str, *arguments: object) -> Iterator[Callable[..., Any]]:
        """Yield a function that sends requests to a worker process.

        Raises:
          RuntimeError: the process died; the message ends with the last line of its stderr.
        """
        command = [self.python, "-m", module, *map(str, arguments)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with tempfile.TemporaryFile("w+", errors="replace") as messages:
            process = subprocess.Popen(command, env=self.environment, stderr=messages, **pipes)

            def ask(request: str, **given: Any) -> Any:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(json.dumps({"request": request, **given}) + "\n")
                    process.stdin.flush()
                answer = process.stdout.readline()
                if not answer:
                    messages.seek(0)
                    lines = messages.read().strip().splitlines() or ["no message"]
                    raise RuntimeError(f"{module} ended with status {process.wait()}: {lines[-1]}")
                return json.loads(answer)

            try:
                yield ask
            finally:
                process.kill()
                process.wait()


def requests() -> Iterator[tuple[str, dict[str, Any], Callable[[Any], None]]]:
    """Yield each request's name, its arguments, and a function that answers it."""
    # Send other prints to stderr, so that stdout has only answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        arguments = json.loads(line)
        name = arguments.pop("request")
        yield name, arguments, lambda answer: print(json.dumps(answer), file=answers, flush=True)


def serve(functions: Mapping[str, Callable]) -> None:
    for name, arguments, answer in requests():
        answer(functions[name](**arguments))


def seconds_of(function: Callable[[], Any]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def in_turn(functions: Mapping[str, Callable[[], dict]], repeats: int) -> dict[str, list[dict]]:
    """Call each function `repeats` times in turn; return its results.

    The order alternates, A B, B A, A B, so that a machine that slows down or warms up affects both.
    """
    results: dict[str, list[dict]] = {name: [] for name in functions}
    for i in range(repeats):
        for name in list(functions)[:: 1 if i % 2 == 0 else -1]:
            results[name].append(functions[name]())
    return results


def ratios(theirs: Sequence[dict], ours: Sequence[dict]) -> tuple[float, float, float]:
    """Return the median, least and greatest ratio of seconds."""
    found = [a["seconds"] / b["seconds"] for a, b in zip(theirs, ours, strict=True)]
    return statistics.median(found), min(found), max(found)
