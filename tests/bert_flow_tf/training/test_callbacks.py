"""What happens between the steps of training."""

import os
import signal
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
    model = SiameseBertFlow(_ENCODER, None, num_labels=3)
    steps = callbacks.Steps(tmp_path, 3, weights=model.output_weights)
    steps.step.assign(3)

    def fit(*logs):
        """As Keras calls back, a step after another."""
        given = types.SimpleNamespace(fit=lambda *_, **options: [steps.on_train_batch_end(0, one) for one in logs])
        steps.fit(given, None, 9, model.supervised_variables, save_every=2, used=[])

    with pytest.raises(UserError, match=r"step 5: found flow_loss nan, expected a finite number.*ckpt-4$"):
        fit({"loss": 1.0}, {"loss": 1.0, "flow_loss": float("nan")})
    model.output_weights.assign(np.full([3, 6], np.inf))
    with pytest.raises(UserError, match="step 6: found loss/output_weights:0 with values that are not finite"):
        fit({})
    assert [path.rpartition("-")[2] for path in steps.manager.checkpoints] == ["4"]


def test_a_dev_score_that_is_not_finite_ends_training(tmp_path):
    step = tf.Variable(4, dtype=tf.int64)
    # Of cosines that are all the same, as of an encoder that has collapsed.
    scores = iter([0.5, float("nan")])
    stopping = callbacks.EarlyStopping(step, 2, tmp_path / "early_stopping.json", lambda: next(scores))
    assert not stopping.stops()
    step.assign(6)
    with user_error("step 6: found a dev score of nan"):
        stopping.stops()
    assert (tmp_path / "early_stopping.json").read_text().split() == ["{", '"4":', "0.5", "}"]


def test_a_file_of_scores_without_steps_is_one_line(tmp_path):
    path = tmp_path / "early_stopping.json"
    path.write_text('{"four": 0.5}')
    with user_error(f"{path}: cannot be read as dev scores by step"):
        callbacks.EarlyStopping(tf.Variable(4, dtype=tf.int64), 2, path, lambda: 0.5)


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
