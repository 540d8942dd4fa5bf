"""Ray's workers, the command or Ray itself are killed."""

import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import queue
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from bert_flow_tf import BertFlow
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.scale import on_ray
from bert_flow_tf.scale.settings import ShardSettings
from bert_flow_tf.training.cluster import LostWorker
from tests.bert_flow_tf import small_runs
from tests.refusals import refusal, refused, succeeds, user_error


@pytest.fixture(scope="module")
def start(require):
    """A function that starts `bert-flow`; the end of the tests kills it."""
    require("ray")
    started = []

    def run(*arguments):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-m", "bert_flow_tf.cli", *map(str, arguments)]
        pipes = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
        # A shell ignores SIGINT for its background processes, as these tests may be.
        heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        started.append(
            subprocess.Popen(command, env=environment, **pipes, text=True, preexec_fn=heard)
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


def _wait(condition, process=None):
    for _ in range(4000):
        if condition():
            return
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise TimeoutError


def _descendants(pid, pattern=""):
    """Return the descendant processes with such a command line."""
    parents, commands = {}, {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(path.name)] = (path / "cmdline").read_bytes().decode()
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(child for child in found - {pid} if re.match(pattern, commands.get(child, "")))


def _kill(process, pattern):
    os.kill(_descendants(process.pid, pattern)[0], signal.SIGKILL)


def _killed_launch(start, encoder_dir, folder):
    """Launch docs/scale.md's training, kill a worker, return what the end says."""
    killed = folder / "out" / "killed"
    guide = (pathlib.Path(__file__).parents[3] / "docs" / "scale.md").read_text()
    command = re.search(r"<!-- snippet: launch -->\n```bash\n(.+?)```", guide, re.DOTALL)[1]
    _, *arguments = shlex.split(command.replace("\\\n", " "))
    flags = small_runs.as_flags(_launched_values(folder, encoder_dir), exp_name="killed")
    process = start(*arguments, *flags)
    _wait(lambda: list(killed.glob("model.ckpt-*.index")), process)
    _kill(process, "ray::RayTrainWorker")
    return small_runs.finish(process)


def _launched_values(folder, encoder_dir):
    changes = {"save_checkpoints_steps": 20, "num_train_epochs": 30.0, "do_eval": True}
    return small_runs.flow_values(folder, encoder_dir, **changes)


_MISTAKE = """
import sys
from bert_flow_tf.common.errors import UserError, exit_status
from bert_flow_tf.scale.on_ray import train_on_ray

class LostWorker(UserError):
    "Another class than the real one, which would import TensorFlow."

def run():
    open("{path}", "a").write("called,")
    raise UserError("TF_CONFIG: found 2 devices")

sys.exit(exit_status(lambda: train_on_ray(run, LostWorker, workers=1, threads=1, address=None, restarts=0)))
"""


@pytest.fixture(scope="module")
def launch(start, small_encoder_dir, tmp_path_factory):
    """Folder and future of a launch, which mostly waits for Ray Train."""
    folder = tmp_path_factory.mktemp("launch")
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        yield folder, thread.submit(_killed_launch, start, small_encoder_dir, folder)


def test_encoding_resumes_after_killed_workers_ray_or_command(
    start, launch, tiny_encoder_dir, tmp_path
):
    (tmp_path / "texts").mkdir()
    for name in "ab":
        # Each part is a file, so many more than the tests wait for only cost time.
        lines = [json.dumps({"sentence": f"w{i % 50} w{i % 7} {name}"}) for i in range(150)]
        (tmp_path / "texts" / f"{name}.jsonl").write_text("\n".join(lines))
    texts, out, expected = tmp_path / "texts" / "*.jsonl", tmp_path / "out", tmp_path / "expected"
    BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8).encode_dataset(
        texts, expected, ShardSettings(shard_rows=1)
    )
    command = (
        "encode-folder",
        "--bert_hub",
        tiny_encoder_dir,
        "--max_seq_length",
        8,
        "--shard_rows",
        1,
    )
    encode = functools.partial(start, *command, "--input", texts, "--out", out, "--workers")

    def wait_for_parts(process, more):
        target = len(list(out.glob("part-*"))) + more
        _wait(lambda: len(list(out.glob("part-*"))) > target, process)

    process = encode(2)
    wait_for_parts(process, 10)
    _kill(process, "ray::_Worker")
    wait_for_parts(process, 10)
    # Else workers could write all other parts before they notice that Ray is gone.
    (raylet,) = _descendants(process.pid, "[^\0]*/raylet\0")
    os.kill(raylet, signal.SIGSTOP)
    for pid in [*_descendants(raylet), raylet]:
        os.kill(pid, signal.SIGKILL)
    said, error = process.communicate(timeout=300)
    assert "Raylet" not in said and "run the same command" in refusal(
        process.returncode, error, after_log=True
    )
    # The next command must have much to do, however many parts there are.
    for part in sorted(out.glob("part-*"))[20:]:
        part.unlink()
    process = encode(1)
    wait_for_parts(process, 10)
    below = _descendants(process.pid)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=300)
    assert process.returncode == 130, error
    _wait(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in below))
    # A process without Ray finishes the folder.
    said = succeeds(*command, "--input", texts, "--out", out)
    assert "(300 of width 32, 300 parts, " in said and "300 of them new" not in said
    # A worker that is killed leaves its lock's file.
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.suffix != ".lock"} == {
        path.name: path.read_bytes() for path in expected.iterdir()
    }


_POOLING = """
from bert_flow_tf.encoder.pooling import Pooling

def last(n, num_layers):
    return Pooling((-1,))
"""


def test_workers_import_a_users_own_code(start, tiny_encoder_dir, tmp_path):
    (tmp_path / "own_on_ray.py").write_text(_POOLING)
    (tmp_path / "texts.txt").write_text("w1 w2\nw3\n")
    command = [
        "--code",
        tmp_path / "own_on_ray.py",
        "encode-folder",
        "--bert_hub",
        tiny_encoder_dir,
    ]
    command += ["--pooling", "own_on_ray:last", "--input", tmp_path / "texts.txt"]
    process = start(*command, "--out", tmp_path / "out", "--workers", 1)
    said, error = process.communicate(timeout=300)
    assert process.returncode == 0 and "(2 of width 32, 1 parts, " in said, error


@pytest.mark.parametrize(
    ("address", "parts"), [(None, ["workers: "]), ("127.0.0.1:1", ["ray: ", "127.0.0.1:1"])]
)
def test_a_ray_that_cannot_be_reached_is_one_line(monkeypatch, address, parts):
    def time_out(**options):
        assert options.get("address") == address
        raise Exception("The current node timed out")

    monkeypatch.setattr(pytest.importorskip("ray"), "init", time_out)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    with user_error(*parts, "(The current node timed out)"), on_ray.connected(address, 1, 1):
        pass


def test_workers_without_ray_are_one_line(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("w1\n")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    options = (
        "--bert_hub",
        "demo",
        "--input",
        tmp_path / "a.txt",
        "--out",
        tmp_path / "out",
        "--workers",
        2,
    )
    line = refused("encode-folder", *options, unchanged=tmp_path)
    assert line.startswith("--workers: ") and "'.[scale]'" in line


def test_killed_launch_has_the_bits_of_one_process(launch, small_encoder_dir, tmp_path):
    folder, future = launch
    status, error = future.result()
    assert status == 0 and "Running training" in error, error
    killed = folder / "out" / "killed"
    values = _launched_values(tmp_path, small_encoder_dir)
    # Two devices share a batch as the two workers do.
    whole = small_runs.run(values, exp_name="whole", num_logical_cpus=2)
    small_runs.assert_same_bits(killed, whole)
    assert (killed / "eval_results.txt").read_bytes() == (whole / "eval_results.txt").read_bytes()


def test_a_mistake_of_a_worker_is_not_tried_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The handler of a worker's log would stay in this process.
    monkeypatch.setattr(on_ray.absl_logging, "use_absl_handler", lambda: None)
    called = []

    def run():
        called.append(1)
        raise UserError("mistake")

    given = {"folder": tmp_path, "mistakes": queue.Queue(), "run": run, "lost": LostWorker}
    with user_error("mistake"):
        on_ray._train(given)
    # Ray Train restarts the worker.
    on_ray._train(given)
    assert called == [1]


def test_a_mistake_of_a_worker_is_one_line(require, tmp_path):
    require("ray")
    calls = tmp_path / "calls"
    # Beside another Ray, Ray Train's monitor would log a traceback.
    status, error = small_runs.finish(small_runs.start([], _MISTAKE.format(path=str(calls))))
    assert "TF_CONFIG: found 2 devices" in refusal(status, error, after_log=True)
    assert calls.read_text() == "called,"
    assert "--overwrite" in refused(
        "launch", "--workers", 2, "--", "--task_name=STS-B", "--overwrite"
    )
