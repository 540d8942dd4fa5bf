"""Workers, as processes of this machine, train what one process trains."""

import contextlib
import re

import pytest

from bert_flow_tf.training.cluster import Cluster
from tests.bert_flow_tf import small_runs
from tests.refusals import user_error


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", Cluster(0, 1)),
        (
            '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", '
            '"index": 0}}',
            Cluster(1, 2),
        ),
        ("{", None),
        ('{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}', None),
    ],
)
def test_a_worker_is_numbered_by_tf_config(text, found, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with contextlib.nullcontext() if found else user_error("TF_CONFIG: "):
        assert Cluster.from_environment() == found


# A checkpoint that it writes ends it.
_WRITES_NO_CHECKPOINT = """
import runpy
from bert_flow_tf.common.errors import quiet_libraries
quiet_libraries()  # It makes the import faster, as in the other worker.
import tensorflow as tf
tf.train.CheckpointManager.save = None
runpy.run_module("bert_flow_tf.run_siamese", run_name="__main__")
"""


def test_workers_train_the_same_model_as_one_process(tmp_path, small_encoder_dir):
    # Encoder and flow, which begins with the data's scale, with dropout and a batch that does not
    # divide.
    changes = {
        "num_examples": 6,
        "train_batch_size": 9,
        "num_train_epochs": 1.5,
        "early_stopping": True,
    }
    changes |= {"flow_ddi": True}
    values = (
        small_runs.flow_values(tmp_path, small_encoder_dir, do_eval=True, do_predict=True) | changes
    )
    together = small_runs.as_flags(values, exp_name="together")
    workers = small_runs.start_workers((together,), (together, _WRITES_NO_CHECKPOINT))
    alone = small_runs.run(values, exp_name="alone")
    for status, stderr in map(small_runs.finish, workers):
        assert status == 0, stderr
    together = alone.parent / "together"
    small_runs.assert_same_training(together, alone)
    for name in ("eval_results.txt", "test_results.tsv", "early_stopping.json"):
        texts = [(run_dir / name).read_text() for run_dir in (together, alone)]
        found, expected = (
            [float(number) for number in re.findall(r"[-+.\de]*\d", text)] for text in texts
        )
        assert found == pytest.approx(expected, abs=1e-4)


def test_workers_continue_a_run_with_more_epochs(tmp_path, small_encoder_dir):
    # All workers must call the same collectives: the chief alone knows that the run continues.
    values = small_runs.flow_values(tmp_path, small_encoder_dir, save_checkpoints_steps=2)
    longer = {"num_train_epochs": 2.0}
    continued = small_runs.run(values, exp_name="continued", num_train_epochs=1.0)
    arguments = small_runs.as_flags(values, exp_name="continued", **longer)
    workers = small_runs.start_workers((arguments,), (arguments, _WRITES_NO_CHECKPOINT))
    whole = small_runs.run(values, exp_name="whole", **longer)
    for status, stderr in map(small_runs.finish, workers):
        assert status == 0, stderr
    small_runs.assert_same_training(continued, whole)
