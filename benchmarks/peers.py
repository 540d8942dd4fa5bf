"""The environment of PyTorch and sentence-transformers."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import venv

import platformdirs

from benchmarks.processes import ROOT, Side

REQUIREMENTS = pathlib.Path(__file__).with_name("peers-requirements.txt")
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
_MARKER = "installed"


def environment_dir() -> pathlib.Path:
    """Return the environment's path for these requirements and this Python."""
    cache = os.environ.get("BERT_FLOW_CACHE") or platformdirs.user_cache_dir("bert_flow_tf")
    digest = hashlib.sha256(repr((tuple(sys.version_info[:3]), sys.executable)).encode())
    digest.update(REQUIREMENTS.read_bytes())
    return pathlib.Path(cache) / "benchmark_peers" / digest.hexdigest()[:16]


def peers_python() -> pathlib.Path:
    """Return the peers' Python; the first call installs it.

    Raises:
      RuntimeError: the packages cannot be installed.
    """
    folder = environment_dir()
    python = folder / "bin" / "python"
    if (folder / _MARKER).is_file():
        return python
    print(f"peers: installing {REQUIREMENTS.name} into {folder}", flush=True)
    # An earlier installation may have been interrupted.
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    venv.create(folder, with_pip=True)
    # Install torch alone, because pip would also ask PyTorch's index for every other package.
    torch = next(
        line for line in REQUIREMENTS.read_text().splitlines() if line.startswith("torch==")
    )
    _install(python, "--no-deps", "--extra-index-url", TORCH_INDEX, torch)
    _install(python, "-r", str(REQUIREMENTS))
    (folder / _MARKER).touch()
    return python


def _install(python: pathlib.Path, *arguments: str) -> None:
    command = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        *arguments,
    ]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    if outcome.returncode:
        errors = [line for line in outcome.stderr.splitlines() if line.startswith("ERROR:")] or [
            "no message"
        ]
        raise RuntimeError(
            f"{REQUIREMENTS}: could not be installed from the package index "
            f"({errors[-1].removeprefix('ERROR:').strip()}); set PIP_INDEX_URL or PIP_FIND_LINKS "
            "to where they are"
        )


def peer_environment() -> dict[str, str]:
    """Return environment variables that turn off network and advice."""
    return os.environ | {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "PYTHONWARNINGS": "ignore",
    }


def peer() -> Side:
    """Return the peers' Python and variables, to run `benchmarks.torch_peers`."""
    return Side(str(peers_python()), peer_environment() | {"PYTHONPATH": str(ROOT)})


def write_weights(bert_hub: str, out: pathlib.Path) -> pathlib.Path:
    """Write an encoder for sentence-transformers; return the folder."""
    ours = Side(sys.executable, os.environ | {"PYTHONPATH": str(ROOT)})
    made = f"BertFlow.from_hub({bert_hub!r}, pooling='avg', max_seq_length=64)"
    ours.run(
        "-c",
        f"from bert_flow_tf import BertFlow; {made}.export({str(out)!r}, "
        "format='sentence-transformers')",
    )
    return out
