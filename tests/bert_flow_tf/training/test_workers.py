"""Workers, as processes of this machine, train what one process trains, or say why they cannot."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

from bert_flow_tf.runs.cluster import Cluster
from bert_flow_tf.runs.folder import TRAIN_RESULTS_FILE
from bert_flow_tf.training.workers import Workers
from tests.bert_flow_tf import small_runs
from tests.refusals import refusal


def test_rows_of_workers_are_all_of_a_batch():
    for size in (8, 9, 11):
        taken = [Workers(Cluster(("a:1",) * 4, ("",) * 4, i)).rows(size) for i in range(4)]
        rows = [np.arange(size)[one] for one in taken]
        np.testing.assert_array_equal(np.concatenate(rows), np.arange(size))
        assert max(map(len, rows)) - min(map(len, rows)) <= 1


_WRITES_NO_CHECKPOINT = """
import sys
import tensorflow as tf
from bert_flow_tf import run_siamese

def save(*arguments, **options):
    raise AssertionError("a checkpoint is written")

tf.train.CheckpointManager.save = save
sys.exit(run_siamese.run_command(sys.argv[1:]))
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
    assert json.loads((together / TRAIN_RESULTS_FILE).read_text())["replicas"] == 2
    for name in ("eval_results.txt", "test_results.tsv", "early_stopping.json"):
        texts = [(run_dir / name).read_text() for run_dir in (together, alone)]
        found, expected = ([float(number) for number in re.findall(r"[-+.\de]*\d", text)] for text in texts)
        assert found == pytest.approx(expected, abs=1e-4)
    # One wrote, and the others left nothing.
    assert {path.name.partition("events")[0] for path in together.iterdir()} == {
        path.name.partition("events")[0] for path in alone.iterdir()
    }


_WAITS = """
import time
from bert_flow_tf.runs.cluster import Cluster
from bert_flow_tf.training.workers import Workers

with Workers(Cluster(("a:1", "b:1"), ("", ""), 0), timeout=4) as workers:
    workers.has_advanced()
    time.sleep(3)
    workers.has_advanced()
    time.sleep(3)
    workers.may_take_its_time()
    time.sleep(8)
    print("it may take its time", flush=True)
    workers.has_advanced()
    time.sleep(60)
"""


def test_a_worker_that_does_not_get_on_ends():
    done = subprocess.run([sys.executable, "-c", _WAITS], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 75, done.stderr
    assert done.stdout == "it may take its time\n"
    assert done.stderr.splitlines()[-1] == "error: found no step in 4 seconds, expected one (--worker_timeout)"


def test_workers_without_a_common_folder_say_so(tmp_path, small_encoder_dir):
    values = small_runs.flow_values(tmp_path, small_encoder_dir)
    places = (str(tmp_path / "here"), str(tmp_path / "there"))
    arguments = [small_runs.as_flags(values, exp_name="run", output_parent_dir=place) for place in places]
    for status, stderr in map(small_runs.finish, small_runs.start_workers(arguments)):
        refusal(status, stderr, "worker 1 (127.0.0.1:", "cannot see", "all workers share", after_log=True)
    assert not (tmp_path / "here").exists() and not (tmp_path / "there").exists()
