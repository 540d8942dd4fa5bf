"""Workers, as processes of this machine, train what one process trains."""

import contextlib
import json
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


# Two runs in one process, which share its cluster: to connect takes seconds.
_RUN_ALL = """
import functools, json, sys
from bert_flow_tf.common.errors import quiet_libraries
quiet_libraries()  # It makes the import faster, as in the command line.
import tensorflow as tf
from tests.bert_flow_tf import small_runs
strategy = tf.distribute.MultiWorkerMirroredStrategy
tf.distribute.MultiWorkerMirroredStrategy = functools.cache(strategy)
{first_line}
for arguments in json.loads({commands!r}):
    if status := small_runs.run_command(arguments):
        sys.exit(status)
"""
# A checkpoint that it writes ends it.
_WRITES_NO_CHECKPOINT = "tf.train.CheckpointManager.save = None"


@pytest.fixture(scope="module")
def trained(tmp_path_factory, small_encoder_dir):
    """A folder of runs by two workers and by one process."""
    folder = tmp_path_factory.mktemp("workers")
    flow = small_runs.flow_values(folder, small_encoder_dir)
    # Encoder and flow, which begins with the data's scale, with dropout and a batch that does not
    # divide.
    both = flow | {
        "do_eval": True,
        "do_predict": True,
        "num_examples": 6,
        "train_batch_size": 9,
        "num_train_epochs": 1.5,
        "early_stopping": True,
        "flow_ddi": True,
    }
    longer = flow | {"num_train_epochs": 2.0}
    small_runs.run(flow, exp_name="continued", num_train_epochs=1.0)
    commands = json.dumps(
        [
            small_runs.as_flags(both, exp_name="together"),
            small_runs.as_flags(longer, exp_name="continued"),
        ]
    )
    workers = small_runs.start_workers(
        *(
            ([], _RUN_ALL.format(first_line=line, commands=commands))
            for line in ("", _WRITES_NO_CHECKPOINT)
        )
    )
    small_runs.run(both, exp_name="alone")
    small_runs.run(longer, exp_name="whole")
    for status, stderr in map(small_runs.finish, workers):
        assert status == 0, stderr
    return folder / "out"


def test_workers_train_the_same_model_as_one_process(trained):
    small_runs.assert_same_training(trained / "together", trained / "alone")
    for name in ("eval_results.txt", "test_results.tsv", "early_stopping.json"):
        texts = [(trained / run / name).read_text() for run in ("together", "alone")]
        found, expected = (
            [float(number) for number in re.findall(r"[-+.\de]*\d", text)] for text in texts
        )
        assert found == pytest.approx(expected, abs=1e-4)


def test_workers_continue_a_run_with_more_epochs(trained):
    # All workers must call the same collectives: the chief alone knows that the run continues.
    small_runs.assert_same_training(trained / "continued", trained / "whole")
