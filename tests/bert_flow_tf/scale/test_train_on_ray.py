"""`bert-flow launch --ray`: in a cluster, workers killed or not, a run has the bits that it has on one machine."""

import contextlib
import os
import pathlib
import signal
import time

import pytest

from tests.bert_flow_tf import small_runs
from tests.bert_flow_tf.scale.test_local_workers import documented, last_step, wait_for_step
from tests.refusals import refusal


@pytest.fixture
def launch(cluster, start):
    """Function (command, further options) that starts a launch in the cluster."""
    address, variables = cluster

    def run(command, *options):
        at = command.index("launch") + 1
        return start(*command[1:at], "--ray", address, *options, *command[at:], **variables)

    return run


def workers_of(name):
    """Processes of the workers of that run, by their number in TF_CONFIG."""
    found = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command, environment = ((path / one).read_bytes().decode() for one in ("cmdline", "environ"))
            if "bert_flow_tf.run_siamese" in command and f"--exp_name={name}\0" in command:
                found['index": 1' in environment] = int(path.name)
    return found


def test_a_run_in_a_cluster_is_that_of_this_machine_also_where_workers_die(launch, small_encoder_dir, tmp_path):
    values = small_runs.flow_values(
        tmp_path, small_encoder_dir, num_train_epochs=300.0, save_checkpoints_steps=60, do_eval=True
    )
    here, there = tmp_path / "out" / "here", tmp_path / "out" / "there"
    launcher = launch(documented(values, "there"))
    wait_for_step(there, 60, launcher)
    os.kill(workers_of("there")[True], signal.SIGKILL)
    stopped = last_step(there)
    wait_for_step(there, stopped + 60, launcher)
    launcher.send_signal(signal.SIGINT)
    status, stderr = small_runs.finish(launcher)
    assert status == 130 and "rerun the same command to resume" in stderr, stderr
    assert "worker 1 was ended by signal 9: all workers start again, 1 of 3" in stderr, stderr
    assert not workers_of("there") and not (there / "train_results.json").exists()
    status, stderr = small_runs.finish(launch(documented(values, "there")))
    assert status == 0 and "Running training" in stderr, stderr
    status, stderr = small_runs.finish(launch(documented(values, "here")))
    small_runs.assert_same_bits(there, here)
    assert (there / "eval_results.txt").read_bytes() == (here / "eval_results.txt").read_bytes()


def test_a_mistake_and_restarts_that_are_used_up_are_one_line(launch, small_encoder_dir, tmp_path):
    values = small_runs.flow_values(tmp_path, small_encoder_dir)
    status, stderr = small_runs.finish(launch(documented(values | {"train_batch_size": 1}, "run")))
    refusal(status, stderr, "--train_batch_size: found 1, expected at least the 2 workers", after_log=True)
    status, stderr = small_runs.finish(launch(documented(values, "run"), "--worker_threads", 2))
    refusal(status, stderr, "--workers: found 2 of 2 threads, expected at most 1, for which the cluster at ")
    launcher = launch(documented(values | {"num_train_epochs": 1e4}, "run"), "--max_restarts", 0)
    wait_for_step(tmp_path / "out" / "run", 0, launcher)
    os.kill(workers_of("run")[False], signal.SIGKILL)
    status, stderr = small_runs.finish(launcher)
    assert status == 75, stderr
    assert stderr.splitlines()[-1] == (
        "error: worker 0 was ended by signal 9 after 0 restarts, expected no more (run the same command to go on)"
    )


def test_a_command_that_is_interrupted_while_its_workers_start_says_so(launch, small_encoder_dir, tmp_path):
    launcher = launch(documented(small_runs.flow_values(tmp_path, small_encoder_dir), "run"))
    # Ray is connected by then, and no worker trains yet.
    time.sleep(4)
    launcher.send_signal(signal.SIGINT)
    status, stderr = small_runs.finish(launcher)
    assert status == 130 and stderr.splitlines()[-1] == "interrupted", stderr
    assert not workers_of("run") and not (tmp_path / "out" / "run" / "train_results.json").exists()
