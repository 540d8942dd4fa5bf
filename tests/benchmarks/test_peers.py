"""The peers' environment, without installing it, and the processes in it."""

import ast
import pathlib
import re
import subprocess
import sys

import pytest

from benchmarks import peers
from bert_flow_tf.errors import UserError

_BENCHMARKS = pathlib.Path(peers.__file__).parent


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tmp_path))
    monkeypatch.setattr(peers.venv, "create", lambda folder, with_pip: folder.mkdir())
    return tmp_path


def _pip(monkeypatch, returncode=0, stderr=""):
    """list of the commands that are run from now on, all of which end like this."""
    commands = []

    def run(command, **options):
        commands.append(command)
        return subprocess.CompletedProcess(command, returncode, "", stderr)

    monkeypatch.setattr(peers.subprocess, "run", run)
    return commands


def test_other_requirements_or_another_python_have_an_environment_of_their_own(tmp_path):
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path in files:
        path.write_text(f"torch=={len(path.name)}.{path.stem}")
    folders = [peers.environment_dir(path, version) for path in files for version in ((3, 11, 7), (3, 12, 0))]
    assert len(set(folders)) == 4
    assert peers.environment_dir(files[0], (3, 11, 7)) == folders[0]


def test_peers_are_pinned_and_torch_is_the_build_for_cpus():
    lines = [line for line in peers.REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z-]+==[0-9.]+(\+cpu)?", line) for line in lines)
    assert next(line for line in lines if line.startswith("torch")).endswith("+cpu")


def test_the_environment_is_made_once(cache, monkeypatch):
    commands = _pip(monkeypatch)
    python = peers.peers_python()
    assert python.is_relative_to(cache)
    assert [command[0] for command in commands] == [str(python)] * 2
    assert "torch==" in commands[0][-1] and commands[1][-1] == str(peers.REQUIREMENTS)
    assert peers.peers_python() == python
    assert len(commands) == 2


def test_an_index_that_cannot_be_reached_is_one_line_and_leaves_nothing_that_counts(cache, monkeypatch):
    _pip(monkeypatch, 1, "WARNING: retrying\nERROR: No matching distribution found for torch\n")
    for _ in range(2):  # a second call starts over
        with pytest.raises(
            UserError, match=r"\(No matching distribution found for torch\); set PIP_INDEX_URL"
        ) as error:
            peers.peers_python()
        assert "\n" not in str(error.value)


def test_peers_know_nothing_of_the_project():
    files = [*_BENCHMARKS.glob("peer_*.py"), *_BENCHMARKS.glob("torch_*.py")]
    assert len(files) == 10
    own = {f"benchmarks.{path.stem}" for path in files}
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] not in ("bert_flow_tf", "glow", "tensorflow"), (path.name, name)
                assert not name.startswith("benchmarks") or name in own, (path.name, name)


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(peers, "peers_python", lambda: sys.executable)
    with peers.Worker("tests.benchmarks.echo_worker") as worker:
        yield worker


def test_a_worker_answers_every_request(worker):
    assert worker.ask("add", a=1, b=2) == {"sum": 3}
    assert worker.ask("add", a="é", b="\n") == {"sum": "é\n"}


def test_a_worker_that_dies_is_an_error_with_its_last_words(worker):
    with pytest.raises(UserError, match=r"echo_worker ended with status 1: out of memory, say$"):
        worker.ask("die")
