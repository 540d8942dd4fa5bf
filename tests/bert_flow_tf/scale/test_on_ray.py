"""Workers, driver and all may be killed or stopped: every row once, in the same bytes, and no process is left."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import threading
import time

import pytest

from bert_flow_tf import BertFlow
from tests.bert_flow_tf.scale.ray_cluster import descendants, workers
from tests.refusals import refusal, refused

# The functions that are pickled are in modules, as BertFlow's is.
_EMBEDDER = """
import os, signal, time
import numpy as np

class Slow:
    fingerprint, embedding_size = "slow", 2

    def encode_parts(self, sentences, *settings):
        time.sleep(1)
        if "deadly" in sentences:
            os.kill(os.getpid(), signal.SIGKILL)
        yield sentences, np.ones([len(sentences), 2], np.float32)
"""
_DRIVER = """
import functools, sys
import embedder
from bert_flow_tf.errors import exit_status, quiet_libraries
from bert_flow_tf.commands.options import ModelOptions
from bert_flow_tf.scale.bulk import Job, Settings
from bert_flow_tf.scale.on_ray import on_ray
from bert_flow_tf.scale.shards import cut, input_paths

def run():
    encoder, inputs, out, rows, workers, patience = sys.argv[1:]
    settings = Settings(shard_rows=int(rows))
    job = Job(cut(input_paths(inputs), shard_rows=int(rows)), out, settings)
    load = functools.partial(ModelOptions(bert_hub=encoder, max_seq_length=8).load, "float32")
    load = embedder.Slow if encoder == "slow" else load
    with on_ray(load, out, settings, workers=int(workers), patience=float(patience)) as engine:
        job.run(engine, engine.model, engine.embedding_size)

if __name__ == "__main__":
    quiet_libraries()
    raise SystemExit(exit_status(run))
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Folder of two files with 3,000 sentences in all."""
    folder = tmp_path_factory.mktemp("texts")
    for name in "ab":
        lines = [{"sentence": f"w{i % 50} w{i % 7} {name}"} for i in range(1500)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def expected(tiny_encoder_dir, texts, tmp_path_factory):
    """The bytes of each file that one process writes."""
    out = tmp_path_factory.mktemp("expected") / "out"
    BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8).encode_dataset(f"{texts}/*.jsonl", out, shard_rows=10)
    return _files(out)


def _files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _wait(condition, process=None):
    for _ in range(4000):
        if condition():
            return
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.05)
    raise TimeoutError


@pytest.fixture
def driver(start, tmp_path):
    """Function (arguments of `_DRIVER`) that starts it."""
    (tmp_path / "driver.py").write_text(_DRIVER)
    (tmp_path / "embedder.py").write_text(_EMBEDDER)
    return lambda *arguments: start(tmp_path / "driver.py", *arguments)


def _parts(out):
    return len(list(out.glob("part-*")))


def test_shards_of_a_killed_and_of_a_stalled_worker_go_to_others(
    require, driver, tiny_encoder_dir, texts, expected, tmp_path
):
    require("ray")
    for path in texts.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "c.jsonl").write_text('{"sentence": 1}\n')
    out = tmp_path / "out"
    process = driver(tiny_encoder_dir, f"{tmp_path}/*.jsonl", out, 10, 2, 2.0)
    _wait(lambda: _parts(out) > 10, process)
    killed, stopped = workers(process.pid)
    os.kill(killed, signal.SIGKILL)
    os.kill(stopped, signal.SIGSTOP)
    _, said = process.communicate(timeout=300)
    refusal(process.returncode, said, "part-00002-00000.parquet: ", "c.jsonl, line 1: sentence: found 1")
    # That of the third file is a shard more.
    manifest = json.loads(expected["_manifest.json"]) | {"shards": 301}
    assert json.loads((out / "_manifest.json").read_text()) == manifest
    (out / "_manifest.json").write_bytes(expected["_manifest.json"])
    assert _files(out) == expected


def test_a_shard_that_its_workers_die_of_is_named_and_those_after_it_are_embedded(require, driver, tmp_path):
    require("ray")
    out = tmp_path / "out"
    (tmp_path / "a.txt").write_text("a\n")
    assert driver("slow", f"{tmp_path}/*.txt", out, 1, 1, 0.1).wait(timeout=300) == 0
    (tmp_path / "b.txt").write_text("b\ndeadly\nc\n")
    # The first part is there: how fast that is known says nothing of how long a shard takes.
    process = driver("slow", f"{tmp_path}/*.txt", out, 1, 1, 0.1)
    _, said = process.communicate(timeout=300)
    refusal(process.returncode, said, "part-00001-00001.parquet: its worker died or stalled 3 times")
    names = [f"part-{name}.parquet" for name in ("00000-00000", "00001-00000", "00001-00002")]
    assert sorted(path.name for path in out.glob("part-*")) == names


def test_a_command_that_is_killed_or_interrupted_leaves_no_process_and_goes_on(
    require, start, tiny_encoder_dir, texts, expected, tmp_path
):
    require("ray")
    out = tmp_path / "out"
    command = ("-m", "bert_flow_tf.cli", "encode", "--bert_hub", tiny_encoder_dir, "--max_seq_length", 8)
    command = (*command, "--input", f"{texts}/*.jsonl", "--out", out, "--shard_rows", 10, "--workers", 2)
    for number, status in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
        before = _parts(out)
        process = start(*command)
        _wait(lambda before=before: _parts(out) > before + 20, process)
        # Of a killed driver, two of Ray's own processes take a minute or two to end.
        others = workers(process.pid) if number == signal.SIGKILL else descendants(process.pid)
        assert len(workers(process.pid)) == 2
        process.send_signal(number)
        process.communicate(timeout=300)
        assert process.returncode == status
        _wait(lambda others=others: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in others))
        assert _parts(out) < len(expected) - 1
    # What the interrupted command had done is recorded, but for what each worker was about to report.
    assert 0 <= _parts(out) - len(json.loads((out / "_manifest.json").read_text())["parts"]) <= 2
    process = start(*command)
    said, _ = process.communicate(timeout=300)
    assert f"embeddings written: {out} (3000 of width 32, 300 parts, " in said
    assert _files(out) == expected


def test_a_cluster_is_found_and_its_token_is_needed(start, cluster, tiny_encoder_dir, texts, expected, tmp_path):
    address, variables = cluster
    command = (
        "-m",
        "bert_flow_tf.cli",
        "encode",
        "--bert_hub",
        tiny_encoder_dir,
        "--max_seq_length",
        8,
        "--workers",
        2,
    )
    command = (*command, "--ray", address, "--input", f"{texts}/*.jsonl", "--out", tmp_path / "out", "--shard_rows", 10)
    process = start(*command, **variables | {"RAY_AUTH_TOKEN": "1" * 64})
    _, said = process.communicate(timeout=300)
    refusal(process.returncode, said, f"--ray: found no cluster at {address} (", "RAY_AUTH_MODE")
    assert list(tmp_path.iterdir()) == []
    process = start(*command, **variables)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert _files(tmp_path / "out") == expected


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_port_that_is_not_rays_is_one_line_soon(require, start, answer, tiny_encoder_dir, texts, tmp_path):
    require("ray")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1] if answer else 1
        threading.Thread(target=_answer, args=(server, answer), daemon=True).start()
        encode = ("encode", "--bert_hub", tiny_encoder_dir, "--input", texts / "a.jsonl", "--out", tmp_path / "out")
        for command in (encode, ("launch", "--task_name=STS-B")):
            begun = time.monotonic()
            process = start("-m", "bert_flow_tf.cli", *command, "--workers", 1, "--ray", f"127.0.0.1:{port}")
            _, said = process.communicate(timeout=300)
            refusal(process.returncode, said, f"--ray: found no cluster at 127.0.0.1:{port} (")
            assert time.monotonic() - begun < 40
    assert list(tmp_path.iterdir()) == []


def _answer(server, answer):
    with contextlib.suppress(OSError):
        while True:
            connection, _ = server.accept()
            connection.sendall(answer)


def test_a_ray_that_does_not_start_is_one_line(require, start, tmp_path):
    require("ray")
    texts, folder = tmp_path / "a.txt", tmp_path / ("long" * 20)
    texts.write_text("a\n")
    folder.mkdir()
    command = ("-m", "bert_flow_tf.cli", "encode", "--bert_hub", "demo", "--input", texts, "--out", tmp_path / "out")
    process = start(*command, "--workers", 1, TMPDIR=str(folder))
    _, said = process.communicate(timeout=300)
    # The names of its sockets are too long.
    refusal(process.returncode, said, "--workers: found that Ray does not start here (")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.txt", folder.name]


def test_workers_without_ray_are_refused(texts, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    options = ("--bert_hub", "demo", "--input", texts / "a.jsonl", "--out", tmp_path / "out")
    line = refused("encode", *options, "--workers", 2, unchanged=tmp_path)
    assert line == "--workers: Ray is not installed: pip install 'bert-flow-tf[scale]', or '.[scale]' in a clone"
    assert "--ray: found no --workers" in refused("encode", *options, "--ray", "h:1")
