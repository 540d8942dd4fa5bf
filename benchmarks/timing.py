"""How things are timed: in turn, as ratios of pairs; and a process as a whole, with its peak memory."""

import concurrent.futures.process
import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from typing import Any

from bert_flow_tf.errors import UserError


def in_turn(ways: dict[Any, Callable], repeats: int) -> dict[Any, list]:
    """dict of name -> list [repeats] of what each way gave, called one after the other.

    The order turns round every time, A B, B A, A B: a machine that slows down, or warms up, does so to both.

    Args:
      ways: dict of name -> function without arguments.
      repeats: 1 or more.
    """
    results = {name: [] for name in ways}
    for i in range(repeats):
        for name in list(ways) if i % 2 == 0 else list(ways)[::-1]:
            results[name].append(ways[name]())
    return results


def paired_ratios(numerators: list[float], denominators: list[float]) -> dict:
    """dict of `median`, `least`, `greatest` and `all` of the ratios of the two lists' pairs."""
    ratios = [a / b for a, b in zip(numerators, denominators, strict=True)]
    return {
        "median": statistics.median(ratios),
        "least": min(ratios),
        "greatest": max(ratios),
        "all": ratios,
    }


def shown(ratios: dict, digits: int = 2) -> str:
    """The ratios as a table has them: `1.08 (1.05 to 1.11)`."""
    median, least, greatest = (f"{ratios[name]:.{digits}f}" for name in ("median", "least", "greatest"))
    return f"{median} ({least} to {greatest})"


def seconds_of(function: Callable) -> float:
    """Seconds that a call of `function` takes."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def whole_process(command: list[str], **options: Any) -> dict:
    """dict of a process' `seconds` from start to end, `seconds_to_output`, `peak_memory_mib` and `output`.

    The peak that Linux reports of a process is at least that of the one which started it, so the caller must be
    smaller than what it measures: without TensorFlow.

    Args:
      command: list of strings.
      **options: as of `subprocess.Popen`.

    Raises:
      UserError: the process failed; the line ends as its messages end.
    """
    with tempfile.TemporaryFile() as messages:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=messages, **options)
        with process.stdout:
            first_line = process.stdout.readline()
            to_output = time.perf_counter() - started
            output = first_line + process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        # Popen was not asked, so it does not know yet.
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            messages.seek(0)
            lines = messages.read().decode(errors="replace").strip().splitlines() or ["no message"]
            raise UserError(f"{' '.join(command[:3])} ended with status {process.returncode}: {lines[-1]}")
        return {
            "seconds": seconds,
            "seconds_to_output": to_output,
            "peak_memory_mib": usage.ru_maxrss / 1024,
            "output": output.decode(),
        }


def in_own_process(name: str, function: Callable, *arguments: Any) -> Any:
    """What `function` gives for the arguments, in a new process, so that it profits from nothing that was set up here.

    Raises:
      UserError: the process was killed; the line begins with `name`.
    """
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except concurrent.futures.process.BrokenProcessPool as error:
            raise UserError(f"{name}: its process was killed, perhaps for lack of memory") from error
