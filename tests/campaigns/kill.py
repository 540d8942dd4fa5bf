"""SIGKILL at random places of every command that writes, the same command until it ends, and what is there then.

    python -m tests.campaigns.kill --trials 500 --seed 1

A trial kills at a random time, before a random write, rename or removal of Python's, or at a random change in the
folder, which TensorFlow's own writes are; half of the second attempts are killed too. Then the command must end well
and leave the same names with the same contents as a run that nobody interrupted, but for times and the order of a
SavedModel's graph. A command runs in a process forked from this one, which has imported TensorFlow and not used it.
"""

import argparse
import collections
import contextlib
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping

from tests.campaigns.commands import COMMANDS, prepare

# What differs between two runs that nobody interrupted.
_TIMES = re.compile(r'"(seconds|fit_seconds|peak_memory_mib)": [^,\n}]+')
_UNEQUAL = re.compile(r"events\.out\.tfevents|saved_model\.pb$|fingerprint\.pb$|SHA256SUMS$|\.data-|variables\.index$")
_WRITES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link")
_DONE = re.compile(r"found a finished run of these settings|: exists, expected a new (file|folder)")
_SERIES = re.compile(r"tfevents.*")

Run = Callable[[], int]


def forked(run: Run, folder: pathlib.Path, kill_at: int = 0, report: int | None = None) -> int:
    """Number of a process that runs in the folder and kills itself before its write `kill_at`, counted from 1.

    Its output goes to a file beside the folder, and the number of its writes to the descriptor `report`.
    """
    if pid := os.fork():
        return pid
    writes = 0

    def hook(event: str, arguments: tuple) -> None:
        nonlocal writes
        if event in _WRITES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT):
            # A path that is relative is in the folder.
            path = arguments[0]
            if isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(str(folder)):
                writes += 1
                if writes == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

    log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(folder)
    sys.addaudithook(hook)
    status = 70
    try:
        status = run()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 70
    finally:
        if report is not None:
            os.write(report, str(writes).encode())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def end(pid: int) -> int:
    """Exit status of a process, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def from_process(run: Callable[[int], None]) -> str:
    """What `run` writes to its descriptor, in a process of its own."""
    reading, writing = os.pipe()
    if not (pid := os.fork()):
        os.close(reading)
        run(writing)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


def contents(folder: pathlib.Path) -> dict[str, str]:
    """Digest of every file below the folder, by name, as far as two runs that nobody interrupted agree."""

    def write(descriptor: int) -> None:
        import tensorflow as tf

        found = {}
        for path in sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()):
            name = str(path.relative_to(folder))
            if _UNEQUAL.search(name):
                found[_SERIES.sub("tfevents", name)] = ""
                continue
            data = path.read_bytes()
            if path.suffix == ".index":
                reader = tf.train.load_checkpoint(str(path.with_suffix("")))
                keys = sorted(reader.get_variable_to_shape_map())
                # The first counts the files that were written, the second holds TensorFlow's own numbers.
                kept = [key for key in keys if not key.startswith(("save_counter", "_CHECKPOINTABLE"))]
                data = b"".join(key.encode() + reader.get_tensor(key).tobytes() for key in kept)
            elif path.name == "checkpoint":
                data = data.splitlines()[0]
            elif path.suffix == ".json":
                data = _TIMES.sub("", data.decode()).encode()
            found[name] = hashlib.sha256(data).hexdigest()
        os.write(descriptor, json.dumps(found).encode())

    return json.loads(from_process(write))


def kill(run: Run, folder: pathlib.Path, rng: random.Random, seconds: float, writes: int) -> str:
    """Runs and kills somewhere; gives where."""
    kind = rng.choice(("time", "write", "change"))
    if kind == "write":
        at = rng.randint(1, writes)
        end(forked(run, folder, kill_at=at))
        return f"write {at} of {writes}"
    pid = forked(run, folder)
    if kind == "time":
        place = rng.uniform(0, seconds)
        time.sleep(place)
    else:
        place = rng.randint(1, 60)
        last, left, until = None, place, time.monotonic() + 2 * seconds
        while left and time.monotonic() < until:
            now = {(name, len(files)) for name, _, files in os.walk(folder)}
            left, last = left - (now != last), now
    os.kill(pid, signal.SIGKILL)
    end(pid)
    return f"{kind} {place:.2f}"


@contextlib.contextmanager
def work(start: pathlib.Path) -> Iterator[pathlib.Path]:
    """A copy of a folder, always at the same path: results name it."""
    folder = pathlib.Path(tempfile.gettempdir()) / f"kill_{os.getpid()}" / "work"
    shutil.copytree(start, folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder.parent)


def trial(run: Run, start: pathlib.Path, whole: Mapping[str, str], rng: random.Random, cost: tuple[float, int]) -> str:
    """One trial in a copy of the folder `start`; gives what was violated, "" for nothing."""
    with work(start) as folder:
        places = [kill(run, folder, rng, *cost)]
        if rng.random() < 0.5:
            places.append(kill(run, folder, rng, *cost))
        status = end(forked(run, folder))
        said = (folder.with_suffix(".log").read_text(errors="replace").splitlines() or [""])[-1]
        # What was killed after its last write refuses to do it again.
        if status and not (status == 2 and _DONE.search(said)):
            return f"{', '.join(places)}: exit status {status}: {said}"
        found = contents(folder)
        wrong = [name for name in sorted(found.keys() | whole.keys()) if found.get(name) != whole.get(name)]
        return f"{', '.join(places)}: differ: {', '.join(wrong)}" if wrong else ""


def uninterrupted(run: Run, start: pathlib.Path) -> tuple[dict[str, str], tuple[float, int]]:
    """What a run that nobody interrupts leaves, its seconds and its number of writes."""
    reading, writing = os.pipe()
    with work(start) as folder, os.fdopen(reading) as pipe:
        since = time.monotonic()
        status = end(forked(run, folder, report=writing))
        seconds = time.monotonic() - since
        os.close(writing)
        assert status == 0, folder.with_suffix(".log").read_text(errors="replace")
        return contents(folder), (seconds, int(pipe.read()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=50, help="of all commands together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=sorted(COMMANDS), default=list(COMMANDS))
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    counts: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    with tempfile.TemporaryDirectory() as temporary:
        start = pathlib.Path(temporary) / "start"
        start.mkdir()
        with work(start) as folder:
            prepared = end(forked(lambda: prepare(folder), folder))
            assert prepared == 0, folder.with_suffix(".log").read_text(errors="replace")
            shutil.copytree(folder, start, dirs_exist_ok=True)
        measured = {}
        for number in range(arguments.trials):
            name = arguments.only[number % len(arguments.only)]
            if name not in measured:
                measured[name] = uninterrupted(COMMANDS[name], start)
            whole, cost = measured[name]
            violation = trial(COMMANDS[name], start, whole, rng, cost)
            counts[name][0] += 1
            if violation:
                counts[name][1] += 1
                print(f"{name}: {violation}", flush=True)
    for name, (trials, violations) in counts.items():
        print(f"{name:12} {trials:4} trials {violations:4} violations")
    violations = sum(count for _, count in counts.values())
    print(f"{arguments.trials} trials, {violations} violations")
    return int(violations > 0)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
