"""`bert-flow launch`: workers that are killed start again and end in the same bits."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from bert_flow_tf.files.digest import file_digest
from tests.bert_flow_tf import small_runs
from tests.refusals import refused

_GUIDE = pathlib.Path(__file__).parents[3] / "docs" / "scale.md"


def documented(settings, name):
    """The guide's command, with these settings of `run_siamese` after its own."""
    command = re.search(r"<!-- snippet: launch -->\n```bash\n(.+?)```", _GUIDE.read_text(), re.DOTALL)[1]
    program, *arguments = shlex.split(command.replace("\\\n", " "))
    assert program == "bert-flow"
    return [sys.executable, "-m", "bert_flow_tf.cli", *arguments, *small_runs.as_flags(settings, exp_name=name)]


def workers_of(launcher):
    """Numbers of the workers' processes, in the workers' order."""
    children = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((path / "stat").read_text().rpartition(")")[2].split()[1]) == launcher.pid:
                children.append(int(path.name))
    return sorted(children)


def start(command):
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def last_step(run_dir):
    return max((int(path.stem.rpartition("-")[2]) for path in run_dir.glob("model.ckpt-*.index")), default=-1)


def wait_for_step(run_dir, step, process):
    while last_step(run_dir) < step:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)


@pytest.fixture
def stateful_encoder_dir(small_encoder_dir, tmp_path):
    """`small_encoder_dir` with a dropout that is not BERT's, and so is drawn in the SavedModel, which has a state."""
    folder = tmp_path / "stateful"
    shutil.copytree(small_encoder_dir, folder)
    path = folder / "encoder" / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    nodes = [node for each in model.meta_graphs[0].graph_def.library.function for node in each.node_def]
    (rate,) = [node for node in nodes if node.name.endswith("layer_0/dropout/general_dropout/GreaterEqual/y")]
    rate.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(0.25, tf.float32))
    old = file_digest(path)
    path.write_bytes(model.SerializeToString())
    record = folder / "source.json"
    record.write_text(record.read_text().replace(old, file_digest(path)))
    return folder


def test_a_launch_that_was_ended_and_lost_workers_ends_in_the_same_bits(tmp_path, stateful_encoder_dir):
    values = small_runs.flow_values(
        tmp_path, stateful_encoder_dir, num_train_epochs=60.0, save_checkpoints_steps=15, do_eval=True
    )
    whole, run_dir = tmp_path / "out" / "whole", tmp_path / "out" / "killed"
    done = start(documented(values, "whole"))
    status, stderr = small_runs.finish(done)
    assert status == 0, stderr
    # Each is the run's own, of Python: none is of TensorFlow's servers.
    assert not [line for line in stderr.splitlines() if re.search(r"absl::|\.cc:\d+]", line)], stderr
    launcher = start(documented(values, "killed"))
    wait_for_step(run_dir, 15, launcher)
    os.kill(workers_of(launcher)[1], signal.SIGTERM)
    status, stderr = small_runs.finish(launcher)
    assert status == 130 and "rerun the same command to resume" in stderr, stderr
    stopped = last_step(run_dir)
    assert 15 <= stopped < 180 and not (run_dir / "train_results.json").exists()
    launcher = start(documented(values, "killed"))
    wait_for_step(run_dir, stopped + 15, launcher)
    os.kill(workers_of(launcher)[1], signal.SIGKILL)
    status, stderr = small_runs.finish(launcher)
    assert status == 0 and "worker 1 was ended by signal 9: all workers start again, 1 of 3" in stderr, stderr
    assert "error: worker 1 (127.0.0.1:" in stderr
    small_runs.assert_same_bits(run_dir, whole)
    states = [value for key, value in small_runs.checkpoint_variables(whole).items() if key.startswith("dropout/")]
    # Four layers on two workers, no two of which draw the same.
    assert len({state.tobytes() for state in states}) == len(states) == 8
    assert (run_dir / "eval_results.txt").read_bytes() == (whole / "eval_results.txt").read_bytes()


def test_a_launch_that_would_begin_again_with_every_restart_is_refused():
    assert "--overwrite" in refused("launch", "--workers", 2, "--", "--task_name=STS-B", "--overwrite")


def test_a_worker_that_stops_is_given_up_and_restarts_are_counted(tmp_path, small_encoder_dir):
    values = small_runs.flow_values(tmp_path, small_encoder_dir, num_train_epochs=1e5, save_checkpoints_steps=15)
    run_dir = tmp_path / "out" / "run"
    command = documented(values, "run")
    at = command.index("--workers")
    launcher = start([*command[:at], "--max_restarts", "1", *command[at:]])
    wait_for_step(run_dir, 15, launcher)
    first = workers_of(launcher)
    os.kill(first[1], signal.SIGSTOP)
    begun = time.monotonic()
    while {*first} & {*workers_of(launcher)}:
        time.sleep(0.1)
    # 15 s until the other one ends, and as many for the launcher.
    assert time.monotonic() - begun < 40
    wait_for_step(run_dir, last_step(run_dir) + 15, launcher)
    os.kill(workers_of(launcher)[0], signal.SIGKILL)
    status, stderr = small_runs.finish(launcher)
    assert status == 75 and "all workers start again, 1 of 1" in stderr, stderr
    last = "worker 0 was ended by signal 9 after 1 restarts, expected no more (run the same command to go on)"
    assert stderr.splitlines()[-1] == f"error: {last}"


def test_a_worker_that_dies_before_all_are_there_is_noticed_in_15_seconds(tmp_path, small_encoder_dir):
    launcher = start(documented(small_runs.flow_values(tmp_path, small_encoder_dir), "run"))
    while len(found := workers_of(launcher)) < 2:
        assert launcher.poll() is None
        time.sleep(0.01)
    os.kill(found[1], signal.SIGKILL)
    begun = time.monotonic()
    while {*found} & {*workers_of(launcher)}:
        time.sleep(0.05)
    assert time.monotonic() - begun < 17
    status, stderr = small_runs.finish(launcher)
    assert status == 0 and "worker 1 was ended by signal 9: all workers start again, 1 of 3" in stderr, stderr


def test_a_run_goes_on_with_another_number_of_workers(tmp_path, stateful_encoder_dir, caplog):
    values = small_runs.flow_values(tmp_path, stateful_encoder_dir, num_train_epochs=60.0, save_checkpoints_steps=15)
    run_dir = tmp_path / "out" / "run"
    launcher = start(documented(values, "run"))
    wait_for_step(run_dir, 15, launcher)
    launcher.send_signal(signal.SIGTERM)
    status, stderr = small_runs.finish(launcher)
    assert status == 130 and 15 <= last_step(run_dir) < 180, stderr
    small_runs.run(values, exp_name="run")
    assert "was saved by another number of replicas: from here on dropout has new masks" in caplog.text
    assert last_step(run_dir) == 180
    assert json.loads((run_dir / "train_results.json").read_text())["replicas"] == 1
