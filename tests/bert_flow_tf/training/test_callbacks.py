"""What happens between the steps of training."""

import os
import signal
import time
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.errors import UserError
from bert_flow_tf.model.siamese import SiameseBertFlow
from bert_flow_tf.training import callbacks
from tests.refusals import user_error

_ENCODER = types.SimpleNamespace(embedding_size=2, pooled_variables=())


@pytest.mark.differs("not finite")
def test_nothing_that_is_not_finite_is_saved(tmp_path):
    step = tf.Variable(3, dtype=tf.int64)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(step=step), str(tmp_path), max_to_keep=3)
    model = SiameseBertFlow(_ENCODER, None, num_labels=3)
    saver = callbacks.Saver(model.supervised_variables, step, manager, every=2)
    saver.on_train_batch_end(0, {"loss": 1.0})
    with pytest.raises(UserError, match=r"step 5: found flow_loss nan, expected a finite number.*ckpt-4$"):
        saver.on_train_batch_end(1, {"loss": 1.0, "flow_loss": float("nan")})
    model.output_weights.assign(np.full([3, 6], np.inf))
    with pytest.raises(UserError, match="step 6: found loss/output_weights:0 with values that are not finite"):
        saver.on_train_batch_end(2, {})
    assert [path.rpartition("-")[2] for path in manager.checkpoints] == ["4"]


def test_a_dev_score_that_is_not_finite_ends_training(tmp_path):
    step = tf.Variable(4, dtype=tf.int64)
    # Of cosines that are all the same, as of an encoder that has collapsed.
    scores = iter([0.5, float("nan")])
    stopping = callbacks.EarlyStopping(step, 2, lambda model: {"eval_pearsonr": next(scores)}, tmp_path)
    model = SiameseBertFlow(_ENCODER, None, num_labels=3)
    assert not stopping.stops(model)
    step.assign(6)
    with user_error("early_stopping: found a dev score of nan at step 6"):
        stopping.stops(model)
    assert (tmp_path / "early_stopping.json").read_text().split() == ["{", '"4":', "0.5", "}"]


def test_a_learning_curve_is_the_same_where_a_run_was_killed_and_resumed(tmp_path):
    losses = [2.0**-i for i in range(250)]

    def train(folder, begin, end, save_at):
        """Steps from one to another on what is kept in the folder, as `Saver` counts and saves them."""
        step = tf.Variable(begin, dtype=tf.int64)
        curve = callbacks.Curve(["flow_loss"], step, len(losses), folder)
        for loss in losses[begin:end]:
            curve.on_train_batch_end(0, {"flow_loss": np.float32(loss), "loss": 7.0})
            step.assign_add(1)
            if int(step) in save_at:
                curve.save()
        return curve

    whole = train(tmp_path, 0, 250, []).whole()
    assert whole.steps == [*range(3, 250, 3), 250]
    expected = [np.mean(losses[max(0, at - 3) : at]) for at in whole.steps[:-1]]
    assert whole.losses["flow_loss"][:-1] == pytest.approx(expected, rel=1e-5)
    assert whole.losses["flow_loss"][-1] == pytest.approx(losses[249], rel=1e-5)
    # Killed while the checkpoint of step 104 was written: the one of step 100, within a point, is resumed from.
    killed = tmp_path / "killed"
    killed.mkdir()
    train(killed, 0, 110, [50, 100, 104])
    assert train(killed, 100, 250, [200]).whole() == whole


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_training_after_the_running_step(number):
    before = signal.getsignal(number)
    with callbacks.StopOnSignal() as stop:
        stop.set_model(SiameseBertFlow(_ENCODER, None, num_labels=3))
        stop.on_train_batch_end(0, {})
        assert not stop.model.stop_training
        os.kill(os.getpid(), number)
        stop.on_train_batch_end(1, {})
        assert stop.model.stop_training and stop.signal == number
    assert signal.getsignal(number) is before


def test_a_signal_is_seen_by_the_thread_that_the_main_one_waits_for():
    def numbers():
        yield stop.has_come()
        os.kill(os.getpid(), signal.SIGTERM)
        ends = time.monotonic() + 60
        while not stop.has_come() and time.monotonic() < ends:
            time.sleep(0.01)
        yield stop.has_come()

    dataset = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([], tf.bool))
    with callbacks.StopOnSignal() as stop:
        assert [bool(come) for come in dataset] == [False, True]
    assert stop.signal == signal.SIGTERM and signal.set_wakeup_fd(-1) == -1
