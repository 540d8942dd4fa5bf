"""Ray's workers, the command and Ray itself may be killed: every row once, and a run has the same bits."""

import contextlib
import functools
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from bert_flow_tf import BertFlow
from bert_flow_tf.scale import on_ray
from tests.bert_flow_tf import small_runs
from tests.refusals import refusal, refused, user_error

_GUIDE = pathlib.Path(__file__).parents[3] / "docs" / "scale.md"


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Folder of two files with 800 sentences in all."""
    folder = tmp_path_factory.mktemp("texts")
    for name in "ab":
        lines = [{"sentence": f"w{i % 50} w{i % 7} {name}"} for i in range(400)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def expected(tiny_encoder_dir, texts, tmp_path_factory):
    """The bytes of each file that one process writes."""
    out = tmp_path_factory.mktemp("expected") / "out"
    BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8).encode_dataset(f"{texts}/*.jsonl", out, shard_rows=1)
    return _files(out)


@pytest.fixture
def encode(require, start, tiny_encoder_dir, texts, tmp_path):
    """Function (further options) that starts the command that writes the same with two workers into `out`."""
    require("ray")
    command = ("encode-folder", "--bert_hub", tiny_encoder_dir, "--max_seq_length", 8, "--shard_rows", 1)
    command = (*command, "--input", f"{texts}/*.jsonl", "--out", tmp_path / "out", "--workers", 2)
    return lambda *options: start(*command, *options)


@pytest.fixture
def start():
    """Function (arguments of `bert-flow`) that starts it as a process, which has ended when the test has."""
    started = []

    def run(*arguments):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "bert_flow_tf.cli", *map(str, arguments)]
        pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
        # A shell ignores SIGINT for its background processes, as these tests may be.
        heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        started.append(subprocess.Popen(command, env=environment, **pipes, text=True, preexec_fn=heard))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def _files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _parts(out):
    return len(list(out.glob("part-*")))


def _wait(condition, process=None):
    for _ in range(4000):
        if condition():
            return
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise TimeoutError


def _descendants(pid, pattern=""):
    """Numbers of the processes below this one whose command line begins with the pattern."""
    parents, commands = {}, {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(path.name)] = (path / "cmdline").read_bytes().decode()
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(child for child in found - {pid} if re.match(pattern, commands.get(child, "")))


def test_shards_of_a_killed_worker_go_to_others(encode, expected, tmp_path):
    process, out = encode(), tmp_path / "out"
    _wait(lambda: _parts(out) > 10, process)
    os.kill(_descendants(process.pid, "ray::_Worker")[0], signal.SIGKILL)
    said, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    assert "(800 of width 32, 800 parts, 800 of them now)" in said
    assert _files(out) == expected


@pytest.mark.parametrize("killed", ["command", "command interrupted", "raylet", "gcs_server"])
def test_a_killed_command_or_ray_resumes(encode, expected, tmp_path, killed):
    process, out = encode(), tmp_path / "out"
    _wait(lambda: _parts(out) > 10, process)
    below = _descendants(process.pid)
    if killed.startswith("command"):
        number = signal.SIGINT if "interrupted" in killed else signal.SIGKILL
        process.send_signal(number)
    else:
        os.kill(_descendants(process.pid, f"[^\0]*/{killed}\0")[0], signal.SIGKILL)
    _, error = process.communicate(timeout=70)
    if killed == "raylet":
        assert "run the same command" in refusal(process.returncode, error, after_log=True)
    elif killed != "gcs_server":
        assert process.returncode == (130 if "interrupted" in killed else -signal.SIGKILL), error
    print(killed, process.returncode, error)
    _wait(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in below))
    if _parts(out) == 800:
        return
    process = encode()
    said, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    assert "(800 of width 32, 800 parts, 800 of them now)" not in said
    assert _files(out) == expected


def test_a_result_is_not_awaited_without_a_living_node(monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setattr(ray, "wait", lambda references, timeout: ([], references))
    monkeypatch.setattr(ray, "nodes", lambda: [{"Alive": False}])
    with pytest.raises(ray.exceptions.RaySystemError):
        on_ray._first_done(["never"])


def test_a_ray_that_does_not_start_is_one_line(monkeypatch):
    def time_out(**options):
        raise Exception("The current node timed out")

    monkeypatch.setattr(pytest.importorskip("ray"), "init", time_out)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with user_error("workers: Ray cannot be reached here (The current node timed out)"), on_ray.connected(None, 1, 1):
        pass


@pytest.fixture
def launch(require, start, small_encoder_dir, tmp_path):
    """Function (name of the run, further settings) that starts the guide's command with these settings."""
    require("ray")
    command = re.search(r"<!-- snippet: launch -->\n```bash\n(.+?)```", _GUIDE.read_text(), re.DOTALL)[1]
    _, *arguments = shlex.split(command.replace("\\\n", " "))
    values = small_runs.flow_values(tmp_path, small_encoder_dir, save_checkpoints_steps=60, do_eval=True)
    return lambda name, **changes: start(*arguments, *small_runs.as_flags(values | changes, exp_name=name))


def _last_step(run_dir):
    return max((int(path.stem.rpartition("-")[2]) for path in run_dir.glob("model.ckpt-*.index")), default=-1)


def test_a_launch_whose_worker_is_killed_ends_in_the_same_bits(launch, tmp_path):
    whole, killed = tmp_path / "out" / "whole", tmp_path / "out" / "killed"
    status, error = small_runs.finish(launch("whole", num_train_epochs=300.0))
    assert status == 0 and "Running training" in error, error
    process = launch("killed", num_train_epochs=300.0)
    _wait(lambda: _last_step(killed) >= 60, process)
    os.kill(_descendants(process.pid, "ray::RayTrainWorker")[1], signal.SIGKILL)
    stopped = _last_step(killed)
    _wait(lambda: _last_step(killed) >= stopped + 60, process)
    process.send_signal(signal.SIGINT)
    status, error = small_runs.finish(process)
    assert status == 130 and not (killed / "train_results.json").exists(), error
    status, error = small_runs.finish(launch("killed", num_train_epochs=300.0))
    assert status == 0, error
    small_runs.assert_same_bits(killed, whole)
    assert (killed / "eval_results.txt").read_bytes() == (whole / "eval_results.txt").read_bytes()


def test_a_mistake_in_a_launch_is_one_line_and_not_tried_again(launch):
    status, error = small_runs.finish(launch("run", num_logical_cpus=2))
    assert "TF_CONFIG: found 2 devices" in refusal(status, error, after_log=True)
    assert error.count("found 2 devices") < 4


def test_a_launch_that_would_begin_again_with_every_restart_is_an_error():
    assert "--overwrite" in refused("launch", "--workers", 2, "--", "--task_name=STS-B", "--overwrite")


def test_workers_without_ray_are_one_line(texts, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    options = ("--bert_hub", "demo", "--input", texts / "a.jsonl", "--out", tmp_path / "out", "--workers", 2)
    assert refused("encode-folder", *options, unchanged=tmp_path).startswith("--workers: Ray is not installed: pip")


def test_an_address_without_a_cluster_is_one_line(require, start, texts, tmp_path):
    require("ray")
    encode = ("encode-folder", "--bert_hub", "demo", "--input", texts / "a.jsonl", "--out", tmp_path / "out")
    begun = time.monotonic()
    process = start(*encode, "--workers", 1, "--ray", "127.0.0.1:1")
    _, error = process.communicate(timeout=300)
    assert "--ray: Ray cannot be reached at 127.0.0.1:1" in refusal(process.returncode, error, after_log=True)
    assert time.monotonic() - begun < 60 and list(tmp_path.iterdir()) == []
