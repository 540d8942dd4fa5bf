"""Callbacks between training steps."""

import json
import os
import signal
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.model.siamese import SiameseBertFlow
from bert_flow_tf.training import callbacks
from tests.refusals import user_error

_ENCODER = types.SimpleNamespace(embedding_size=2, pooled_variables=())


@pytest.mark.differs("not finite")
def test_nothing_that_is_not_finite_is_saved(tmp_path):
    model = SiameseBertFlow(_ENCODER, None, num_labels=3)
    steps = callbacks.Steps(tmp_path, 3, weights=model.output_weights)
    steps.step.assign(3)

    def fit(*logs):
        """Call back after each step, as Keras does."""
        given = types.SimpleNamespace(fit=lambda *_, **options: [steps.on_train_batch_end(0, one) for one in logs])
        steps.fit(given, None, 9, model.supervised_variables, save_every=2, used=[])

    with user_error("step 5: found flow_loss nan", "ckpt-4"):
        fit({"loss": 1.0}, {"loss": 1.0, "flow_loss": float("nan")})
    model.output_weights.assign(np.full([3, 6], np.inf))
    with user_error("step 6: found loss/output_weights:0"):
        fit({})
    assert [path.rpartition("-")[2] for path in steps.manager.checkpoints] == ["4"]


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
    path.write_text('{"four": 0.5}')
    with user_error(f"{path}: "):
        callbacks.EarlyStopping(step, 2, path, lambda: 0.5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_training_after_the_running_step(number, tmp_path):
    before = signal.getsignal(number)
    steps = callbacks.Steps(tmp_path, 3)
    model = types.SimpleNamespace(stop_training=False)

    def fit(*_, **options):
        steps.set_model(model)
        steps.on_train_batch_end(0, {})
        assert not model.stop_training
        os.kill(os.getpid(), number)
        steps.on_train_batch_end(1, {})
        assert model.stop_training

    model.fit = fit
    with pytest.raises(KeyboardInterrupt):
        steps.fit(model, None, 9, [], save_every=5, used=[])
    assert [path.rpartition("-")[2] for path in steps.manager.checkpoints] == ["2"]
    assert signal.getsignal(number) is before
