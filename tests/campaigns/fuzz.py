"""Rubbish for every reader of every file and of both clients' answers: it is read, or refused in one line.

    python -m tests.campaigns.fuzz --inputs 100000 --seed 1
    python -m tests.campaigns.fuzz --only embeddings --seed 1 --input 4711

An input is a folder, or a server's answer, that can be read, in which a file was changed or has something else in its
place. Violations are: an error other than `UserError`, a message of several lines, more than 2 seconds, more than 1 GiB
of memory above the start, a crash, and rubbish that is accepted where it can be told. A reader runs in a process forked
from this one, which has imported TensorFlow and not used it.
"""

import argparse
import collections
import contextlib
import json
import logging
import os
import pathlib
import random
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence

import tensorflow  # noqa: F401  (before a process is forked)

import bert_flow_tf.api  # noqa: F401
from bert_flow_tf.errors import UserError, command_line_message
from tests.campaigns.readers import READERS, Reader, make_models
from tests.campaigns.rubbish import changed, copied, cut, put_instead

_SECONDS, _BYTES, _CHARACTERS = 2.0, 1 << 30, 5000
# A reader that does not come back by then is killed.
_PATIENCE = 30.0
# Address space above the start: what asks for more gets a `MemoryError`, and other processes none.
_MOST = 16 << 30


def spoil(name: str, whole: pathlib.Path, base: pathlib.Path, seed: int, number: int) -> tuple[pathlib.Path, str, bool]:
    """The folder of an input, what was done to it, and whether a file lost its end and nothing else."""
    rng, reader = random.Random(f"{name} {seed} {number}"), READERS[name]
    folder = base / ("work" if rng.random() < 0.9 else "odd\nname")
    copied(whole, folder)
    path = rng.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    if reader.places and rng.random() < 0.12:
        return folder, f"{put_instead(path, rng, reader.is_stream)} instead of {path.name}", False
    data = path.read_bytes()
    if rng.random() < 0.1:
        path.write_bytes(new := cut(data, rng))
        return folder, f"{path.name} cut to {len(new)} bytes", len(new) < len(data.rstrip())
    path.write_bytes(changed(data, rng))
    return folder, f"{path.name} changed", False


def outcome(reader: Reader, folder: pathlib.Path, is_cut: bool) -> tuple[bool, str]:
    """Whether the reader accepts the folder, and what it does wrong; "" for nothing."""
    try:
        found = reader.read(folder)
        if is_cut and reader.whole:
            return True, "accepted without its end"
        return True, "" if reader.holds(found) else f"accepted: {str(found)[:200]!r}"
    except UserError as error:
        message = command_line_message(error)
        if len(message.splitlines()) == 1 and len(message) <= _CHARACTERS:
            return False, ""
        return False, f"{len(message.splitlines())} lines, {len(message):,} characters: {message[:200]!r}"
    except BaseException as error:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if "/bert_flow_tf/" in frame.filename]
        place = f" at {pathlib.Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
        return False, f"{type(error).__name__}{place}: {str(error)[:200]!r}"


def memory(key: str) -> int:
    """Bytes that this process has, VmRSS, or had at most since they were last forgotten, VmHWM."""
    return int(pathlib.Path("/proc/self/status").read_text().partition(f"{key}:")[2].split()[0]) << 10


def work(name: str, models: pathlib.Path, base: pathlib.Path, seed: int, numbers: range, say: Callable) -> None:
    """Runs a reader on inputs, and says each one's number before and what came of it after."""
    reader, whole = READERS[name], base / "whole"
    if not whole.exists():
        whole.mkdir()
        reader.make(whole, models)
    # What is imported at the first call is not the reader's memory; and what can be read must be accepted.
    copied(whole, base / "work")
    assert reader.holds(reader.read(base / "work")), "what can be read means nothing"
    resource.setrlimit(resource.RLIMIT_AS, (memory("VmSize") + _MOST, resource.RLIM_INFINITY))
    for number in numbers:
        say(begun=number)
        for _ in range(2):
            folder, done, is_cut = spoil(name, whole, base, seed, number)
            pathlib.Path("/proc/self/clear_refs").write_text("5")
            before, since, used = memory("VmRSS"), time.monotonic(), time.process_time()
            accepted, wrong = outcome(reader, folder, is_cut)
            seconds, used, above = time.monotonic() - since, time.process_time() - used, memory("VmHWM") - before
            # Others use this machine as well: what counts is its own time, or that it waits, twice.
            if used > seconds / 10:
                seconds = min(seconds, used)
            if seconds <= _SECONDS:
                break
        if not wrong and seconds > _SECONDS:
            wrong = f"{seconds:.1f} s"
        if not wrong and above > _BYTES:
            wrong = f"{above >> 20:,} MiB of memory"
        say(number=number, accepted=accepted, wrong=wrong and f"{done}: {wrong}", seconds=seconds, above=above)


def forked(name: str, models: pathlib.Path, base: pathlib.Path, seed: int, numbers: range) -> tuple[int, int]:
    """Number of a process that does the `work`, and a descriptor of the lines that it says."""
    reading, writing = os.pipe()
    if pid := os.fork():
        os.close(writing)
        return pid, reading
    status = 70
    try:
        # Readers warn of what they pass over.
        logging.disable()
        work(name, models, base, seed, numbers, lambda **said: os.write(writing, (json.dumps(said) + "\n").encode()))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def outcomes(name: str, models: pathlib.Path, seed: int, numbers: range) -> Iterator[dict]:
    """What is said of every input, also of one that ends the process or never ends."""
    first = numbers.start
    with tempfile.TemporaryDirectory() as temporary:
        while first < numbers.stop:
            pid, reading = forked(name, models, pathlib.Path(temporary), seed, range(first, numbers.stop))
            begun, said, hangs = None, b"", False
            with os.fdopen(reading, "rb", buffering=0) as pipe:
                while not hangs:
                    ready, _, _ = select.select([pipe], [], [], 120.0 if begun is None else _PATIENCE)
                    hangs = not ready
                    data = pipe.read(1 << 16) if ready else b""
                    if not data:
                        break
                    *lines, said = (said + data).split(b"\n")
                    for line in map(json.loads, lines):
                        begun = line.get("begun")
                        if begun is None:
                            first = line["number"] + 1
                            yield line
            if hangs:
                os.kill(pid, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if status:
                wrong = f"more than {_PATIENCE} s" if hangs else f"the process ended with {status}"
                assert begun is not None, f"{name}: {wrong} before its first input"
                first = begun + 1
                yield {"number": begun, "accepted": False, "wrong": wrong, "seconds": _PATIENCE * hangs, "above": 0}


def make_in_process(folder: pathlib.Path) -> None:
    """`make_models` in a process of its own: this one must not use TensorFlow."""
    if not (pid := os.fork()):
        status = 70
        try:
            make_models(folder)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0, "no models were made"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=2000, help="of all readers together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=sorted(READERS), default=list(READERS), metavar="READER")
    parser.add_argument("--input", type=int, metavar="NUMBER", help="this one alone")
    flags = parser.parse_args(arguments)
    counts, most, slowest, began = collections.Counter(), 0, 0.0, time.monotonic()
    shares = sum(READERS[name].share for name in flags.only)
    with tempfile.TemporaryDirectory() as models:
        if any(READERS[name].models for name in flags.only):
            make_in_process(pathlib.Path(models))
        for name in flags.only:
            number, since = flags.input, time.monotonic()
            each = -(-flags.inputs * READERS[name].share // shares)
            numbers = range(each) if number is None else range(number, number + 1)
            own, peak = collections.Counter(), 0
            for said in outcomes(name, pathlib.Path(models), flags.seed, numbers):
                own += collections.Counter(inputs=1, accepted=said["accepted"], violations=bool(said["wrong"]))
                peak, slowest = max(peak, said["above"]), max(slowest, said["seconds"])
                if said["wrong"]:
                    again = f"--only {name} --seed {flags.seed} --input {said['number']}"
                    print(f"{again}: {said['wrong']}", flush=True)
            counts, most = counts + own, max(most, peak)
            figures = f"{own['inputs']:6,} inputs {own['accepted']:6,} accepted {own['violations']:4} violations"
            print(f"{name:15} {figures} {peak >> 20:5,} MiB {time.monotonic() - since:6.1f} s", flush=True)
    print(f"peak memory {most >> 20:,} MiB above the start, slowest input {slowest:.2f} s, in all", end=" ")
    print(f"{time.monotonic() - began:.0f} s, {counts['accepted']:,} inputs accepted")
    print(f"{counts['inputs']:,} inputs, {counts['violations']:,} violations")
    return int(counts["violations"] > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
