"""Commands in processes forked from this one, which has imported TensorFlow and not used it, and what they leave.

A process that has used TensorFlow cannot be forked; one that only imported it saves each command the import.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from tests.campaigns.commands import prepare

# What differs between two runs that nobody interrupted.
_TIMES = re.compile(r'"(seconds|fit_seconds|peak_memory_mib)": [^,\n}]+')
_UNEQUAL = re.compile(r"events\.out\.tfevents|saved_model\.pb$|fingerprint\.pb$|SHA256SUMS$|\.data-")
_SERIES = re.compile(r"tfevents.*")
_WRITES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link")

Run = Callable[[], int]
# Process -> the process that writes its output.
_logs: dict[int, subprocess.Popen] = {}


def forked(run: Run, folder: pathlib.Path, *, kill_at: int = 0, most_bytes: int = -1, report: int | None = None) -> int:
    """Number of a process that runs in the folder and kills itself before its write `kill_at`, counted from 1.

    No file that it writes may be larger than `most_bytes`, which is how a full disk looks to it; -1 for any size. Its
    output goes to a file beside the folder, and the number of its writes to the descriptor `report`.
    """
    with folder.with_suffix(".log").open("wb") as log:
        # Not to the file itself, which the limit would be for, too.
        cat = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
    if pid := os.fork():
        cat.stdin.close()
        _logs[pid] = cat
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

    os.dup2(cat.stdin.fileno(), 1)
    os.dup2(cat.stdin.fileno(), 2)
    os.chdir(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
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
    """Exit status of a process, negative for a signal, when all of its output is written."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    _logs.pop(pid).wait()
    return status


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
                if path.name == "variables.index":
                    # A SavedModel's generators of dropout begin anywhere.
                    types = reader.get_variable_to_dtype_map()
                    kept = [key for key in kept if types[key].is_floating]
                data = b"".join(key.encode() + reader.get_tensor(key).tobytes() for key in kept)
            elif path.name == "checkpoint":
                data = data.splitlines()[0]
            elif path.suffix == ".json":
                data = _TIMES.sub("", data.decode()).encode()
            found[name] = hashlib.sha256(data).hexdigest()
        os.write(descriptor, json.dumps(found).encode())

    return json.loads(from_process(write))


@contextlib.contextmanager
def work(start: pathlib.Path) -> Iterator[pathlib.Path]:
    """A copy of a folder, always at the same path: results name it."""
    folder = pathlib.Path(tempfile.gettempdir()) / f"kill_{os.getpid()}" / "work"
    shutil.copytree(start, folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder.parent)


@contextlib.contextmanager
def prepared() -> Iterator[pathlib.Path]:
    """The folder that every command starts in."""
    with tempfile.TemporaryDirectory() as temporary:
        start = pathlib.Path(temporary) / "start"
        start.mkdir()
        with work(start) as folder:
            status = end(forked(lambda: prepare(folder), folder))
            assert status == 0, said(folder)
            shutil.copytree(folder, start, dirs_exist_ok=True)
        yield start


def said(folder: pathlib.Path) -> str:
    """What the last command in the folder printed."""
    return folder.with_suffix(".log").read_text(encoding="utf-8", errors="replace")


def uninterrupted(run: Run, start: pathlib.Path) -> tuple[dict[str, str], tuple[float, int]]:
    """What a run that nobody interrupts leaves, its seconds and its number of writes."""
    reading, writing = os.pipe()
    with work(start) as folder, os.fdopen(reading) as pipe:
        since = time.monotonic()
        status = end(forked(run, folder, report=writing))
        seconds = time.monotonic() - since
        os.close(writing)
        assert status == 0, said(folder)
        return contents(folder), (seconds, int(pipe.read()))
