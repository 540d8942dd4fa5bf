"""Workers, as processes of this machine, train what one process trains."""

import re

import numpy as np
import pytest

from bert_flow_tf.runs.settings import Cluster
from tests.bert_flow_tf import small_runs
from tests.refusals import user_error


def test_rows_of_workers_are_all_of_a_batch():
    for size in (8, 9, 11):
        rows = [np.arange(size)[Cluster(i, 4).rows(size)] for i in range(4)]
        np.testing.assert_array_equal(np.concatenate(rows), np.arange(size))
        assert max(map(len, rows)) - min(map(len, rows)) <= 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", Cluster(0, 1)),
        ('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}', Cluster(1, 2)),
        ('{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}', Cluster(1, 2)),
    ],
)
def test_a_worker_is_numbered_by_tf_config(text, found, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    assert Cluster.from_environment() == found and found.is_chief == (found.index == 0)


@pytest.mark.parametrize("text", ["{", "{}", '{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}'])
def test_a_mistake_in_tf_config_is_named(text, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with user_error("TF_CONFIG: "):
        Cluster.from_environment()


_WRITES_NO_CHECKPOINT = """
import runpy
import tensorflow as tf

def save(*arguments, **options):
    raise AssertionError("a checkpoint is written")

tf.train.CheckpointManager.save = save
runpy.run_module("bert_flow_tf.run_siamese", run_name="__main__")
"""


def test_workers_train_what_one_process_trains(tmp_path, small_encoder_dir):
    # Encoder and flow, which begins with the data's scale, with dropout and a batch that does not divide.
    changes = {"num_examples": 6, "train_batch_size": 9, "num_train_epochs": 3.0, "early_stopping": True}
    changes |= {"flow_ddi": True}
    values = small_runs.flow_values(tmp_path, small_encoder_dir, do_eval=True, do_predict=True) | changes
    workers = small_runs.start_workers(
        [small_runs.as_flags(values, exp_name="together")] * 2, programs=[None, _WRITES_NO_CHECKPOINT]
    )
    alone = small_runs.run(values, exp_name="alone")
    for status, stderr in map(small_runs.finish, workers):
        assert status == 0, stderr
    together = alone.parent / "together"
    for name in ("loss", "flow_loss", "supervised_loss", "grad_norm", "flow_grad_norm"):
        expected = small_runs.logged(alone, name)
        assert len(expected) > 1
        np.testing.assert_allclose(small_runs.logged(together, name), expected, rtol=1e-5, atol=1e-6)
    found, expected = small_runs.checkpoint_variables(together), small_runs.checkpoint_variables(alone)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if "/adam_" not in key and "optimizer" not in key:
            np.testing.assert_allclose(found[key], value, atol=1e-5, err_msg=key)
    for name in ("eval_results.txt", "test_results.tsv", "early_stopping.json"):
        texts = [(run_dir / name).read_text() for run_dir in (together, alone)]
        found, expected = ([float(number) for number in re.findall(r"[-+.\de]*\d", text)] for text in texts)
        assert found == pytest.approx(expected, abs=1e-4)
