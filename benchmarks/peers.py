"""The environment that holds what the project is measured against, and processes in it."""

import contextlib
import hashlib
import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from typing import Any

import platformdirs

from bert_flow_tf.errors import UserError

ROOT = pathlib.Path(__file__).parents[1]
REQUIREMENTS = pathlib.Path(__file__).with_name("peers-requirements.txt")
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
RECORDED = ("torch", "sentence-transformers", "transformers", "tokenizers", "numpy")
_MARKER = "installed"


def environment_dir(
    requirements: str | pathlib.Path = REQUIREMENTS, python_version: Sequence[int] = sys.version_info[:3]
) -> pathlib.Path:
    """Path of the environment for these requirements and this Python, in BERT_FLOW_CACHE or the user's cache."""
    cache = os.environ.get("BERT_FLOW_CACHE") or platformdirs.user_cache_dir("bert_flow_tf")
    digest = hashlib.sha256(repr((tuple(python_version), sys.executable)).encode())
    digest.update(pathlib.Path(requirements).read_bytes())
    return pathlib.Path(cache) / "benchmark_peers" / digest.hexdigest()[:16]


def peers_python() -> pathlib.Path:
    """Path of the Python of the peers' environment; the first call makes it from the package index, some minutes.

    Raises:
      UserError: the packages cannot be installed.
    """
    folder = environment_dir()
    python = folder / "bin" / "python"
    if (folder / _MARKER).is_file():
        return python
    print(f"peers: installing {REQUIREMENTS.name} into {folder}", flush=True)
    # What an interrupted installation left is not whole.
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    venv.create(folder, with_pip=True)
    # torch alone first: PyTorch's index has its builds for CPUs, and would be asked for every other package, too.
    torch = next(line for line in REQUIREMENTS.read_text().splitlines() if line.startswith("torch=="))
    _install(python, "--no-deps", "--extra-index-url", TORCH_INDEX, torch)
    _install(python, "-r", str(REQUIREMENTS))
    (folder / _MARKER).touch()
    return python


def _install(python: pathlib.Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    if outcome.returncode:
        errors = [line for line in outcome.stderr.splitlines() if line.startswith("ERROR:")] or ["no message"]
        raise UserError(
            f"{REQUIREMENTS}: could not be installed from the package index "
            f"({errors[-1].removeprefix('ERROR:').strip()}); set PIP_INDEX_URL or PIP_FIND_LINKS to where they are"
        )


def versions() -> dict[str, str]:
    """dict of package -> version of what the peers' environment holds of `RECORDED`."""
    paths = [str(path) for path in peers_python().parents[1].glob("lib/python*/site-packages")]
    found = {item.metadata["Name"].lower(): item.version for item in importlib.metadata.distributions(path=paths)}
    return {name: found[name] for name in RECORDED}


def peer_environment() -> dict[str, str]:
    """dict of environment variables for the peers: no network, no advice."""
    return os.environ | {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "PYTHONWARNINGS": "ignore",
    }


class Worker(contextlib.AbstractContextManager):
    """A process of the peers' Python that answers requests, one JSON object a line, until the block ends.

    Args:
      module: its module, `benchmarks.peer_encode` say; it must not import `bert_flow_tf`.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._messages = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 (closed with the worker)
        self._process = subprocess.Popen(
            [str(peers_python()), "-m", module],
            cwd=ROOT,
            env=peer_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
        )

    def ask(self, request: str, **arguments: Any) -> Any:
        """What the worker's function `request` gives for the arguments.

        Raises:
          UserError: the worker died; the line ends as its messages end.
        """
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"request": request, **arguments}) + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._messages.seek(0)
            lines = self._messages.read().strip().splitlines() or ["no message"]
            raise UserError(f"{self._module} ended with status {self._process.wait()}: {lines[-1]}")
        return json.loads(answer)

    def __exit__(self, *exception: object) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self._messages.close()
