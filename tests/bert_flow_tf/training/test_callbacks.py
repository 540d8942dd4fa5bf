"""Callbacks between training steps."""

import json
import signal
import types

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from bert_flow_tf.training import callbacks
from tests.refusals import user_error


@pytest.mark.differs("not finite")
def test_nothing_that_is_not_finite_is_saved(tmp_path):
    weights = tf.Variable([1.0], name="output_weights")
    checkpoints = callbacks.Checkpoints(tmp_path, 3, weights=weights)
    checkpoints.step.assign(3)
    steps = callbacks.Steps(checkpoints, 2, [weights])

    def fit(*logs):
        """Call back after each step, as Keras does."""
        model = types.SimpleNamespace(
            fit=lambda *_, **options: [steps.on_train_batch_end(0, one) for one in logs]
        )
        callbacks.fit(model, None, 9, steps, [])

    with user_error("step 5: found flow_loss nan", "ckpt-4"):
        fit({"loss": 1.0}, {"loss": 1.0, "flow_loss": float("nan")})
    weights.assign([np.inf])
    with user_error("step 6: found output_weights:0"):
        fit({})
    assert checkpoints.latest.endswith("-4")


def test_a_dev_score_that_is_not_finite_ends_training(tmp_path):
    step, path = tf.Variable(4, dtype=tf.int64), tmp_path / "early_stopping.json"
    # An encoder that has collapsed gives every pair the same cosine.
    scores = iter([0.5, float("nan")])
    stopping = callbacks.EarlyStopping(step, 2, path, lambda: next(scores))
    assert not stopping.should_stop()
    step.assign(6)
    with user_error("step 6: found a dev score of nan"):
        stopping.should_stop()
    assert json.loads(path.read_text()) == {"4": 0.5}


def test_a_signal_ends_training_after_the_running_step(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    checkpoints, model = (
        callbacks.Checkpoints(tmp_path, 3),
        types.SimpleNamespace(stop_training=False),
    )

    def fit(*_, **options):
        called = tf_keras.callbacks.CallbackList(options["callbacks"], model=model)
        for name in ("begin", "end"):
            getattr(called, f"on_train_batch_{name}")(0, {})
        assert not model.stop_training
        signal.raise_signal(signal.SIGINT)
        called.on_train_batch_begin(1, {})
        called.on_train_batch_end(1, {})
        assert model.stop_training
        called.on_train_end()

    model.fit = fit
    with pytest.raises(KeyboardInterrupt):
        callbacks.fit(model, None, 9, callbacks.Steps(checkpoints, 5, []), [])
    assert checkpoints.latest.endswith("-2")
    assert signal.getsignal(signal.SIGINT) is before


def test_a_checkpoint_that_no_list_names_is_the_last_one(tmp_path):
    """A process was killed before it listed step 6."""
    checkpoints = callbacks.Checkpoints(tmp_path, 2)
    for step in (0, 3, 6):
        checkpoints.step.assign(step)
        listed = (tmp_path / "checkpoint").read_bytes() if step == 6 else b""
        checkpoints.save()
    (tmp_path / "checkpoint").write_bytes(listed)
    resumed = callbacks.Checkpoints(tmp_path, 2)
    assert resumed.restore() == resumed.latest == str(tmp_path / "model.ckpt-6")
    resumed.step.assign(9)
    resumed.save()
    assert {path.stem for path in tmp_path.glob("*.index")} == {"model.ckpt-6", "model.ckpt-9"}


def test_scores_after_the_restored_step_are_made_again(tmp_path):
    step, path = tf.Variable(4, dtype=tf.int64), tmp_path / "scores.json"
    path.write_text('{"2": 0.1, "4": 0.2, "6": 0.3}')
    scores = callbacks.DevScores(step, 2, path, lambda: 0.5)
    step.assign(6)
    assert scores.score() == 0.5 and json.loads(path.read_text())["4"] == 0.2
