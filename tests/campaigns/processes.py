"""Commands in processes forked from this one, which has imported TensorFlow and not used it, and what they leave.

A process that has used TensorFlow cannot be forked; one that only imported it saves each command the import. A
recipe's worker is forked from the recipe's process in the same way.
"""

import contextlib
import ctypes
import functools
import gc
import hashlib
import json
import mmap
import os
import pathlib
import random
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from bert_flow_tf.recipe import worker as workers
from tests.campaigns.commands import Run, prepare

# What differs between two runs that nobody interrupted.
_TIMES = ("seconds", "fit_seconds", "peak_memory_mib")
_UNEQUAL = re.compile(
    r"events\.out\.tfevents|saved_model\.pb$|fingerprint\.pb$|SHA256SUMS$|variables\.data-|\.descriptor\.txt$"
)
_SERIES = re.compile(r"tfevents.*")
_WRITES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link")
# Seconds after which a command is taken to hang, in looks at it: a computer that sleeps makes none.
_LIMIT, _LOOK = 300, 0.005
WHOM = ("parent", "child", "both")

_libc = ctypes.CDLL(None, use_errno=True)
# prctl(PR_SET_CHILD_SUBREAPER): a worker whose recipe was killed becomes a child of this process.
_libc.prctl(36, 1, 0, 0, 0)


class Forked:
    """A command in a process of its own, begun in the folder.

    It kills `whom` before its write `kill_at`, counted from 1: its own process, the recipe's worker, or both. No
    file that it writes may be larger than `most_bytes`, which is how a full disk looks to it; -1 for any size.
    """

    def __init__(
        self, run: Run, folder: pathlib.Path, *, kill_at: int = 0, whom: str = "both", most_bytes: int = -1
    ) -> None:
        # The number of writes, and the process of the recipe's worker.
        self._shared = memoryview(mmap.mmap(-1, 16)).cast("q")
        self._log = pathlib.Path(tempfile.mkstemp(suffix=".log", dir=folder.parent)[1])
        self._cat = None
        with self._log.open("ab") as log:
            if most_bytes >= 0:
                # Not to the file itself, which the limit would be for, too.
                self._cat = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
            # Else it would be written once more.
            sys.stdout.flush()
            self.pid = os.fork()
            if not self.pid:
                self.pid = os.getpid()
                output = self._cat.stdin if self._cat else log
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))
                os.chdir(folder)
                os.environ["BERT_FLOW_CACHE"] = str(folder / "cache")
                workers.subprocess = types.SimpleNamespace(Popen=self._worker)
                sys.addaudithook(self._hook(folder, kill_at, whom))
                _end_with(run)
        if self._cat:
            self._cat.stdin.close()

    def _hook(self, folder: pathlib.Path, kill_at: int, whom: str) -> Callable[[str, tuple], None]:
        def hook(event: str, arguments: tuple) -> None:
            if event in _WRITES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT):
                path = arguments[0]
                # A path that is relative is in the folder.
                if isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(str(folder)):
                    self._shared[0] += 1
                    if self._shared[0] == kill_at:
                        self.kill(whom)

        return hook

    def _worker(self, command: Sequence[str], pass_fds: Sequence[int], start_new_session: bool) -> "_Worker":
        worker = _Worker(pass_fds[0], self._shared)
        self._shared[1] = worker.pid
        return worker

    @property
    def writes(self) -> int:
        """Number of Python's writes, renames and removals in the folder so far."""
        return self._shared[0]

    @property
    def has_ended(self) -> bool:
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self, whom: str) -> None:
        """Sends SIGKILL to the process, to the worker that it waits for, if any, to both, or to one that it started."""
        worker = self._shared[1]
        victims = {"parent": [self.pid], "child": [worker or self.pid], "both": [worker, self.pid]}.get(whom)
        if victims is None:
            started = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            victims = [int(random.choice(started or ["0"]))]
        # This one last.
        for pid in sorted(filter(None, victims), key=lambda pid: pid == os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self) -> int:
        """Exit status, negative for a signal."""
        if not _comes_true(lambda: self.has_ended):
            self.kill("both")
            os.waitpid(self.pid, 0)
            raise TimeoutError(f"still running after {_LIMIT} s: {self.said()}")
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if self._cat:
            self._cat.wait()
        return status

    def said(self) -> str:
        """What the command printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")


class _Worker:
    """What a recipe takes for the `subprocess.Popen` of its worker."""

    def __init__(self, descriptor: int, shared: memoryview) -> None:
        self._shared = shared
        self._status: int | None = None
        self.pid = os.fork()
        if not self.pid:
            os.setsid()
            # As in a new process: neither its parent's locks nor the other end of the pipe.
            for inherited in map(int, os.listdir("/proc/self/fd")):
                if inherited > 2 and inherited != descriptor:
                    with contextlib.suppress(OSError):
                        os.close(inherited)
            _end_with(functools.partial(workers.main, [str(descriptor)]))

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self) -> int:
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            self._shared[1] = 0
        return self._status


def _end_with(run: Run) -> None:
    """Ends this process with the status of the command."""
    gc.disable()
    status = 70
    try:
        status = run()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 70
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def are_others_alive() -> bool:
    """Whether workers whose recipe was killed are still there."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def wait_for_others() -> None:
    """Waits until workers whose recipe was killed have ended."""
    if not _comes_true(lambda: not are_others_alive()):
        raise TimeoutError("a worker without a recipe does not end")


def _comes_true(condition: Callable[[], bool]) -> bool:
    for _ in range(round(_LIMIT / _LOOK)):
        if condition():
            return True
        time.sleep(_LOOK)
    return False


class Watch:
    """Counts the changes below a folder, whoever makes them, as inotify(7) tells them."""

    _MODIFY, _CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
    _DIRECTORY = 0x40000000

    def __init__(self, folder: pathlib.Path) -> None:
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK)
        self._folders: dict[int, str] = {}
        self._add(folder)
        self.count = 0

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)

    def _add(self, folder: str | os.PathLike) -> None:
        mask = self._MODIFY | self._CLOSE_WRITE | self._MOVED_FROM | self._MOVED_TO | self._CREATE | self._DELETE
        for above, _, _ in os.walk(folder):
            self._folders[_libc.inotify_add_watch(self._descriptor, os.fsencode(above), mask)] = above

    def wait(self, count: int, process: Forked) -> None:
        """Waits until there were so many changes, or the process has ended."""
        while self.count < count and not process.has_ended:
            if select.select([self._descriptor], [], [], 0.05)[0]:
                self.read()

    def read(self) -> None:
        """Counts what has changed since."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._descriptor, 1 << 16):
                at = 0
                while at < len(data):
                    number, mask, _, length = struct.unpack_from("iIII", data, at)
                    name = data[at + 16 : at + 16 + length].rstrip(b"\0").decode()
                    at += 16 + length
                    self.count += 1
                    if mask & self._DIRECTORY and mask & (self._CREATE | self._MOVED_TO):
                        self._add(os.path.join(self._folders[number], name))


def _from_process(run: Callable[[int], None]) -> str:
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
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            if path.is_dir() and not path.is_symlink():
                found[f"{name}/"] = ""
                continue
            if path.parent.name == "proved":
                # Called by the digest of a SavedModel: how many there are is the same.
                found["proved"] = f"{found.get('proved', '')}+"
                continue
            if _UNEQUAL.search(name):
                found[_SERIES.sub("tfevents", name)] = ""
                continue
            data = path.read_bytes()
            if path.name == "variables.index":
                reader = tf.train.load_checkpoint(str(path.with_suffix("")))
                keys = sorted(reader.get_variable_to_shape_map())
                # TensorFlow describes a SavedModel's objects in another order each time.
                kept = [key for key in keys if not key.startswith("_CHECKPOINTABLE")]
                data = b"".join(key.encode() + reader.get_tensor(key).tobytes() for key in kept)
            elif path.name == "checkpoint":
                data = data.splitlines()[0]
            elif path.suffix == ".json":
                data = str(json.loads(data, object_pairs_hook=_without_times)).encode()
            found[name] = hashlib.sha256(data).hexdigest()
        os.write(descriptor, json.dumps(found).encode())

    return json.loads(_from_process(write))


def _without_times(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Without the digests of SavedModels either: a graph names its functions by all that its process made before."""
    return {name: value for name, value in pairs if name not in _TIMES and not name.endswith("saved_model.pb")}


def differing(found: dict[str, str], whole: dict[str, str]) -> str:
    """What is missing, left over, or has other contents than in `whole`, by its names; "" for nothing."""
    names = {
        "missing": whole.keys() - found.keys(),
        "left": found.keys() - whole.keys(),
        "differ": {name for name in found.keys() & whole.keys() if found[name] != whole[name]},
    }
    return "; ".join(f"{what}: {', '.join(sorted(some))}" for what, some in names.items() if some)


@contextlib.contextmanager
def work(
    start: pathlib.Path,
    mounted: Callable[[pathlib.Path], contextlib.AbstractContextManager] = contextlib.nullcontext,
) -> Iterator[pathlib.Path]:
    """A copy of a folder, always at the same path: results name it. It is made where `mounted(path)` is in force."""
    folder = pathlib.Path(tempfile.gettempdir()) / f"campaign_{os.getpid()}" / "work"
    folder.mkdir(parents=True)
    try:
        with mounted(folder):
            shutil.copytree(start, folder, dirs_exist_ok=True)
            yield folder
    finally:
        shutil.rmtree(folder.parent)


@contextlib.contextmanager
def prepared(names: Collection[str]) -> Iterator[pathlib.Path]:
    """The folder that the commands of these names start in."""
    # Processes that are forked neither walk through what was imported nor copy it.
    gc.collect()
    gc.freeze()
    with tempfile.TemporaryDirectory() as temporary:
        start = pathlib.Path(temporary) / "start"
        start.mkdir()
        with work(start) as folder:
            for step in prepare(folder, names):
                process = Forked(step, folder)
                assert process.end() == 0, process.said()
            shutil.copytree(folder, start, dirs_exist_ok=True)
        yield start


class Uninterrupted:
    """What a run that nobody interrupts leaves, and how many writes, changes, seconds and bytes it takes."""

    def __init__(self, run: Run, start: pathlib.Path) -> None:
        with work(start) as folder, Watch(folder) as watch:
            began, since = time.monotonic(), time.time()
            process = Forked(run, folder)
            watch.wait(1 << 62, process)
            status = process.end()
            self.seconds = time.monotonic() - began
            assert status == 0, process.said()
            watch.read()
            self.writes, self.changes = process.writes, watch.count
            self.contents = contents(folder)
            written = [path.stat() for path in folder.rglob("*") if path.is_file()]
            sizes = [status.st_size for status in written if status.st_mtime > since - 1]
            self.bytes_written, self.largest_file = sum(sizes), max(sizes)
