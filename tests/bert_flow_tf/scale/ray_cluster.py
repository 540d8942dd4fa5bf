"""Clusters of Ray on this machine, and the processes in them."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping

VARIABLES = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": "0" * 64,
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONPATH": os.pathsep.join(sys.path),
}


@contextlib.contextmanager
def head(processors: int) -> Iterator[str]:
    """Address of the head of a cluster, which is started as docs/scale.md says."""
    # Ray's sockets are in it, whose names may not be long.
    folder = tempfile.mkdtemp(prefix="ray_")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--head", "--node-ip-address=127.0.0.1", f"--port={port}", "--include-dashboard=false")
    try:
        with node(*options, f"--temp-dir={folder}", f"--num-cpus={processors}"):
            yield f"127.0.0.1:{port}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def node(*options: str) -> Iterator[subprocess.Popen]:
    """The process that has started a node of a cluster, with whose end the node ends."""
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--object-store-memory=100000000"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, *options], env=os.environ | VARIABLES, stdout=log, stderr=log, start_new_session=True
        )
        try:
            while "Ray runtime started" not in (said := _text(log)):
                assert process.poll() is None, said
                time.sleep(0.1)
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _text(log) -> str:
    log.seek(0)
    return log.read().decode()


def descendants(pid: int) -> Mapping[int, str]:
    """Processes below this one: number to command line."""
    parents, commands = {}, {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(path.name)] = (path / "cmdline").read_bytes().decode()
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {child: commands.get(child, "") for child in found - {pid}}


def workers(pid: int) -> list[int]:
    """Numbers of the workers that embed, below this process."""
    return sorted(child for child, command in descendants(pid).items() if command.startswith("ray::_Worker"))
