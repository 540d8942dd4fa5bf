"""Own losses and Keras callbacks in the training of a flow."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from bert_flow_tf import calibrate
from glow import FlowCalibrator
from glow.flow import Glow
from tests.refusals import user_error

pytestmark = pytest.mark.usefixtures("small_default_flow")

X = (np.random.default_rng(0).normal(size=(600, 8)) ** 3).astype(np.float32)


def fitted(**options):
    made = FlowCalibrator(epochs=4, batch_size=16, show_progress_bar=False, **options)
    return made.fit(X[:500], held_out=X[500:])


def penalised(flow, u, step):
    """Return the flow loss, and the latents' mean square."""
    return flow.bits_per_dim(u, step) + tf.reduce_mean(flow.forward(u) ** 2, axis=-1)


def test_the_default_loss_given_by_hand_gives_the_same_bits():
    expected = fitted()
    found = fitted(loss=Glow.bits_per_dim, callbacks=[tf_keras.callbacks.Callback()])
    np.testing.assert_array_equal(found.transform(X), expected.transform(X))
    np.testing.assert_array_equal(found.losses_, expected.losses_)
    assert found.held_out_losses_ == expected.held_out_losses_


def test_a_loss_of_ones_own_is_what_is_minimised():
    expected, found = (
        FlowCalibrator(epochs=8, batch_size=16, show_progress_bar=False, loss=loss).fit(X)
        for loss in (None, penalised)
    )
    assert found.losses_[0] > expected.losses_[0]
    assert np.mean(found.transform(X) ** 2) < np.mean(expected.transform(X) ** 2)


def test_keras_callbacks_see_losses_and_end_the_training(tmp_path):
    logger = tf_keras.callbacks.CSVLogger(tmp_path / "losses.csv")
    board = tf_keras.callbacks.TensorBoard(tmp_path / "board")
    stopping = tf_keras.callbacks.EarlyStopping("val_loss", patience=0, min_delta=1e6)
    found = fitted(callbacks=[logger, board, stopping])
    lines = (tmp_path / "losses.csv").read_text().splitlines()
    assert lines[0] == "epoch,loss,val_loss"
    # The second epoch is not better by a million, so it is the last.
    assert len(lines) == 3
    assert len(found.held_out_losses_) == 2
    assert list((tmp_path / "board").rglob("events.out.tfevents.*"))


class Recorder(tf_keras.callbacks.Callback):
    """Record every hook with its number and the names of its logs."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if not name.startswith(("on_", "set_params")) or not callable(found):
            return found

        def recorded(*arguments, **options):
            arguments = (*arguments, *options.values())
            said = [sorted(one) if isinstance(one, dict) else one for one in arguments]
            self.calls.append((name, *said))
            return found(*arguments)

        return recorded


def overridden():
    """Return a recorder that overrides every hook."""

    def hook(self, *arguments, **options):
        """Do nothing; Keras calls no batch hook that is not overridden."""

    names = [name for name in dir(tf_keras.callbacks.Callback) if name.startswith("on_")]
    return type("Overridden", (Recorder,), dict.fromkeys(names, hook))()


def test_every_hook_is_called_as_keras_calls_it():
    found = overridden()
    # 160 rows are 10 steps of 16, and 4 epochs of them 40 steps in two calls.
    calibrator = FlowCalibrator(epochs=4, batch_size=16, callbacks=[found])
    calibrator.set_params(show_progress_bar=False).fit(X[:160], held_out=X[500:])
    expected = overridden()
    model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=32)
    model.fit(
        tf.data.Dataset.from_tensors((X[:16], X[:16, :1])).repeat(),
        validation_data=(X[500:], X[500:, :1]),
        validation_batch_size=100,
        steps_per_epoch=32,
        epochs=2,
        verbose=0,
        callbacks=[expected],
    )
    last = [name for name, *_ in expected.calls].index("on_epoch_end") + 1
    # The last call has 8 steps left.
    shorter = [
        ("on_train_batch_end", 7, *said[1:])
        if (name, i > last) == ("on_train_batch_end", True)
        else (name, *said)
        for i, (name, *said) in enumerate(expected.calls)
    ]
    assert found.calls == shorter
    assert {"on_train_batch_begin", "on_test_batch_end", "on_train_end"} <= {
        name for name, *_ in found.calls
    }


WORDS = [f"{a}{b}" for a in "abcdefghijklmnop" for b in "qrstuvwxyz"]


def codes(texts):
    return np.array([[len(text), *map(ord, (text + "zz")[:3])] for text in texts], np.float32)


def never_called(texts):
    raise AssertionError("the sentences were encoded before the arguments were checked")


def test_fit_passes_them_on_and_refuses_them_without_a_flow():
    seen = []
    watch = tf_keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(logs))
    made = calibrate(codes, WORDS, epochs=30, loss=penalised, callbacks=[watch])
    # Held-out sentences are measured without ending the training.
    assert {"loss", "val_loss"} == set(seen[0])
    assert [*made.history_.held_out_losses.values()] == [logs["val_loss"] for logs in seen]
    assert len(made.history_.losses) == max(made.history_.held_out_losses)
    assert made.history_.recorded_losses.unit == "loss of its own"
    for method in ("whitening", FlowCalibrator()):
        with user_error("loss and callbacks: found with the method"):
            calibrate(never_called, WORDS, method=method, loss=penalised, callbacks=[watch])


@pytest.mark.parametrize(
    ("hooks", "found"),
    [
        ({"loss": "mse"}, "loss: found 'mse', expected a function"),
        ({"callbacks": tf_keras.callbacks.EarlyStopping()}, "callbacks: found EarlyStopping"),
        ({"callbacks": [WORDS]}, "callbacks: found builtins.list, expected callbacks of tf_keras"),
        ({"method": FlowCalibrator(loss="mse")}, "loss: found 'mse', expected a function"),
    ],
)
def test_what_is_no_loss_or_callback_is_named_before_encoding(hooks, found):
    with user_error(found):
        calibrate(never_called, WORDS, **hooks)


@pytest.mark.parametrize(
    ("loss", "found"),
    [
        (lambda flow, u, step: tf.reduce_mean(flow.bits_per_dim(u)), r"the shape []"),
        (lambda flow, u, step: tf.reduce_mean(u, axis=0), "the shape [4]"),
        (lambda flow, u, step: None, "NoneType"),
    ],
)
def test_a_loss_of_another_shape_than_the_rows_is_named(loss, found):
    with user_error(f"fit: loss: found {found}, expected [n]"):
        calibrate(codes, WORDS, epochs=30, loss=loss)


@pytest.mark.parametrize("name", ["loss", "callbacks"])
def test_they_are_parameters_of_scikit_learn(name):
    value = penalised if name == "loss" else [tf_keras.callbacks.Callback()]
    assert FlowCalibrator(**{name: value}).get_params()[name] is value
