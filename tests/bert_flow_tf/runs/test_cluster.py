"""TF_CONFIG names the workers of a run, or what is wrong with it."""

import json
import subprocess
import sys

import pytest

from bert_flow_tf.runs.cluster import Cluster
from tests.refusals import refusal, user_error

TWO = {"worker": ["a:1", "b:2"]}


def config(cluster=None, kind="worker", index=0):
    return json.dumps({"cluster": cluster or TWO, "task": {"type": kind, "index": index}})


def test_a_cluster_is_its_workers_the_chief_first(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert Cluster.of_environment() is None
    monkeypatch.setenv("TF_CONFIG", config(index=1))
    assert Cluster.of_environment() == Cluster(
        ("a:1", "b:2"), ("/job:worker/replica:0/task:0", "/job:worker/replica:0/task:1"), 1
    )
    monkeypatch.setenv("TF_CONFIG", config({"worker": ["b:2"], "chief": ["a:1"]}, "worker"))
    found = Cluster.of_environment()
    assert (found.addresses, found.index, found.is_chief) == (("a:1", "b:2"), 1, False)
    monkeypatch.setenv("TF_CONFIG", config({"worker": ["a:1"]}))
    assert Cluster.of_environment() is None


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("{", ["found text that is not JSON"]),
        ('{"task": {"type": "worker", "index": 0}}', ["cluster: found nothing"]),
        ('{"cluster": {"worker": ["a:1"]}}', ["task: found nothing"]),
        ('{"cluster": {}, "task": {"type": "worker", "index": 0}}', ["cluster: found no worker"]),
        (config({"worker": "a:1"}), ["cluster", "found str, expected array"]),
        (config({"worker": ["a:1", "b"]}), ["found 'b', expected HOST:PORT"]),
        (config({"worker": ["a:1", "a:1"]}), ["found an address twice"]),
        (config({"worker": ["a:1"], "ps": ["b:1"]}), ["found tasks of type ps"]),
        (config({"chief": ["a:1", "b:1"]}, "chief"), ["cluster.chief: found 2"]),
        (config(index=2), ["task: found worker 2", "worker 0, worker 1"]),
        (config(index=-1), ["task: found worker -1"]),
        (config(kind="chief"), ["task: found chief 0"]),
    ],
)
def test_a_broken_cluster_is_one_line(monkeypatch, text, parts):
    monkeypatch.setenv("TF_CONFIG", text)
    with user_error("TF_CONFIG: ", *parts):
        Cluster.of_environment()


def test_run_siamese_refuses_it_before_tensorflow_loads(monkeypatch, tmp_path):
    monkeypatch.setenv("TF_CONFIG", config(index=2))
    flags = ["--task_name=STS-B", f"--data_dir={tmp_path}", f"--output_parent_dir={tmp_path}/out", "--exp_name=x"]
    code = (
        "import sys; from bert_flow_tf.run_siamese import run_command; status = run_command(sys.argv[1:]); "
        "assert 'tensorflow' not in sys.modules; sys.exit(status)"
    )
    command = [sys.executable, "-c", code, *flags, "--do_train=true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    refusal(done.returncode, done.stderr, "TF_CONFIG: task: found worker 2")
    assert not (tmp_path / "out").exists()
