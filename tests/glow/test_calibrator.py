"""The flow as a scikit-learn transformer."""

import copy
import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from glow import calibrator as calibrator_module
from glow.calibrator import FlowCalibrator
from glow.config import GlowConfig
from glow.flow import Glow
from glow.optimizer import AdamWeightDecay, apply_clipped

pytestmark = pytest.mark.usefixtures("small_default_flow")


def embeddings(n=64, width=8):
    """Channels of unlike deviations; channel 2 is constant up to rounding."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, width)) * np.linspace(0.2, 1.5, width) + 0.5
    X[:, 2] = 0.7 + 1e-8 * rng.uniform(-1, 1, size=n)
    return X.astype(np.float32)


# TensorFlow takes seconds to trace more than two levels of one step.
SMALL = {"batch_size": 8, "seed": 3, "config": GlowConfig(n_levels=2, depth=1, coupling_width=4)}


@pytest.fixture(scope="module")
def fitted():
    return FlowCalibrator(**SMALL, epochs=6.0, learning_rate=1e-2).fit(embeddings())


def test_latents_samples_and_densities_are_the_flows(fitted):
    # Training has raised the likelihood.
    assert fitted.n_steps_ == len(fitted.losses_) == 48
    assert np.mean(fitted.losses_[-8:]) < np.mean(fitted.losses_[:8]) - 0.1
    X = embeddings()
    z = fitted.transform(X)
    assert z.dtype == np.float32
    np.testing.assert_allclose(z, fitted.flow_.forward(X), rtol=0, atol=1e-5)
    np.testing.assert_allclose(fitted.inverse_transform(z), X, rtol=0, atol=1e-4)
    np.testing.assert_array_equal(fitted.sample(5, seed=4), fitted.flow_.sample(5, seed=4))
    assert fitted.sample().shape == (1, 8)
    np.testing.assert_allclose(fitted.score_samples(X), fitted.flow_.log_prob(X), rtol=1e-5)
    bits = fitted.flow_.bits_per_dim(X).numpy()
    np.testing.assert_allclose(fitted.score_samples(X), -bits * 8 * np.log(2), rtol=1e-5)


def test_steps_are_those_of_the_originals_optimiser(monkeypatch):
    X = embeddings()
    flow = Glow(SMALL["config"], 8, seed=3)
    optimizer = AdamWeightDecay(1e-3)
    optimizer.build(list(flow.trainable_variables))
    order = np.random.default_rng([3, 0]).permutation(64)
    losses = []
    for batch in order[:40].reshape(5, 8):
        with tf.GradientTape() as tape:
            # The sum of two means does not depend on the order of the rows.
            first, second = (
                tf.reduce_mean(flow.bits_per_dim(X[half])) for half in (batch[:4], batch[4:])
            )
            loss = first + second
        losses.append(float(loss) / 2)
        apply_clipped(
            optimizer, tape.gradient(loss, flow.trainable_variables), list(flow.trainable_variables)
        )
    # Two steps a call, and one.
    for limit, value in (("_STEPS_PER_CALL", 2), ("_ROWS_PER_CALL", 7)):
        with monkeypatch.context() as patch:
            patch.setattr(calibrator_module, limit, value)
            ours = FlowCalibrator(**SMALL, epochs=0.625).fit(X)
        np.testing.assert_allclose(ours.losses_, losses, rtol=1e-5)
        for path, expected in flow.variables_by_path.items():
            np.testing.assert_allclose(
                ours.flow_.variables_by_path[path], expected, rtol=0, atol=2e-6, err_msg=path
            )


def test_training_ends_where_held_out_rows_are_most_likely():
    X, options = embeddings(), SMALL | {"learning_rate": 3e-2}
    early = FlowCalibrator(**options, epochs=160.0).fit(X[:16], held_out=X[16:])
    # An epoch is two steps, and each call takes 32.
    flows = [
        FlowCalibrator(**options, epochs=early.n_steps_ / 2 + more).fit(X[:16])
        for more in (-16, 0, 16)
    ]
    best = max(flows, key=lambda flow: flow.score(X[16:]))
    assert early.n_steps_ == best.n_steps_ == len(early.losses_) < 320
    np.testing.assert_array_equal(
        early.partial_fit(X).transform(X), best.partial_fit(X).transform(X)
    )
    with pytest.raises(ValueError, match="held_out: "):
        FlowCalibrator(**options).fit(X, held_out=1e25 * X)


def test_every_epoch_sees_every_row_once():
    rows = np.concatenate([*itertools.islice(FlowCalibrator()._batches(n=20, rows=8), 6)])
    assert sorted(rows[:20]) == sorted(rows[20:40]) == list(range(20))
    assert rows[:20].tolist() != rows[20:40].tolist()


@pytest.fixture
def eagerly():
    """No tracing, which takes longer than the few steps of a test."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


def test_scikit_learns_own_checks_pass(eagerly):
    check_estimator(
        FlowCalibrator(config=GlowConfig(n_levels=1, depth=1, coupling_width=2)), on_skip=None
    )


def test_a_stream_is_learned_in_parts_every_row_once():
    X = embeddings(70)
    parts = FlowCalibrator(**SMALL, learning_rate=1e-2)
    for part in (X[:40], X[40:63], X[63:]):
        parts.partial_fit(part)
    # 5 steps of 8 rows, 2 of 23, and one of the last 7.
    assert parts.n_steps_ == len(parts.losses_) == 8
    assert parts.losses_[-3:].mean() < parts.losses_[:3].mean()


def test_partial_fit_goes_on_after_fit_and_after_a_copy(fitted):
    X = embeddings()
    again = copy.deepcopy(fitted)
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    other = clone(fitted).fit(X).partial_fit(X)
    np.testing.assert_array_equal(again.partial_fit(X).transform(X), other.transform(X))
    assert other.n_steps_ == 48 + 8


def test_failed_part_leaves_the_flow_as_it_was(fitted, monkeypatch):
    X = embeddings()
    again = copy.deepcopy(fitted)
    with pytest.raises(ValueError, match=r"found a loss of inf at step 1 of 8"):
        again.partial_fit(X * 1e30)
    # The first step moves the weights before the second one fails.
    with pytest.raises(ValueError, match=r"at step [2-8] of 8|flow weights that are not finite"):
        again.set_params(learning_rate=1e30).partial_fit(X)
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    monkeypatch.setattr(calibrator_module, "_STEPS_PER_CALL", 3)
    spoilt = np.where(
        np.arange(64)[:, np.newaxis]
        == np.random.default_rng([again.seed, 1, 48]).permutation(64)[30],
        1e30,
        X,
    )
    with pytest.raises(ValueError, match=r"found a loss of inf at step 4 of 8"):
        again.set_params(learning_rate=1e-3).partial_fit(spoilt)
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    with pytest.raises(ValueError, match="6 features"):
        again.partial_fit(embeddings(width=6))


def test_failed_fit_leaves_the_flow_as_it_was(fitted):
    X = embeddings()
    before = fitted.transform(X)
    other = np.full((16, 6), np.nan, np.float32)
    with pytest.raises(ValueError, match="found NaN"):
        fitted.fit(other)
    assert fitted.n_features_in_ == 8
    np.testing.assert_array_equal(fitted.transform(X), before)
    new = clone(fitted)
    with pytest.raises(ValueError, match="found NaN"):
        new.partial_fit(other)
    assert not hasattr(new, "n_features_in_")


@pytest.mark.parametrize(("width", "levels"), [(2, 1), (7, 2), (25, 3)])
def test_narrow_embeddings_get_fewer_levels(eagerly, recwarn, width, levels):
    calibrator = FlowCalibrator(
        GlowConfig(n_levels=3, depth=1, coupling_width=2), batch_size=8, epochs=0.1
    )
    X = np.random.default_rng(1).normal(size=(80, width)).astype(np.float32)
    calibrator.fit(X)
    warned = [f"config: found 3 levels with {width} channels, using {levels}"] if levels < 3 else []
    assert [str(one.message) for one in recwarn if one.category is UserWarning] == warned
    assert calibrator.config_ == dataclasses.replace(calibrator.config, n_levels=levels)
    np.testing.assert_allclose(
        calibrator.inverse_transform(calibrator.transform(X)), X, rtol=0, atol=1e-4
    )


def test_fewer_rows_than_a_batch_are_one_step_and_a_warning(eagerly):
    with pytest.warns(UserWarning, match="batch_size: found 8 with 2 samples"):
        calibrator = FlowCalibrator(**SMALL).fit(embeddings()[:2])
    assert calibrator.n_steps_ == 1


def _with(value):
    X = embeddings()
    X[4, 1] = value
    return X


@pytest.mark.parametrize(
    ("arguments", "X", "words"),
    [
        ({}, _with(np.nan), "found NaN in row 4, column 1"),
        ({}, _with(np.inf), "found inf in row 4, column 1"),
        ({}, embeddings().astype(np.float64) * 1e40, "found inf"),
        ({}, embeddings()[:1], "found n_samples = 1 and n_features = 8"),
        ({}, embeddings(width=4)[:, :1], "and n_features = 1, expected 2"),
        # 0.1 epochs of 64 rows are 6 rows, less than a batch of 8.
        ({"epochs": 0.1}, embeddings(), "found 64 samples and 0.1 epochs"),
        ({"epochs": 0.0}, embeddings(), "epochs: found 0.0"),
        ({"epochs": np.nan}, embeddings(), "epochs: found nan"),
        ({"epochs": 1e308}, embeddings(), "epochs: found 1e\\+308"),
        ({"batch_size": 0}, embeddings(), "batch_size: found 0"),
        ({"learning_rate": -1.0}, embeddings(), "learning_rate: found -1.0"),
        ({"seed": -1}, embeddings(), "seed: found -1"),
        ({"config": "config_l9"}, embeddings(), "'config_l9'"),
        (
            {"data_dependent_init": True},
            np.ones([16, 8], np.float32),
            "do not differ in any channel",
        ),
        # Epochs are drawn as they begin.
        ({"epochs": 1e12}, embeddings() * 1e30, "found a loss of inf at step 1 of 8000000000000"),
    ],
)
def test_what_cannot_be_fitted_is_named(arguments, X, words):
    with pytest.raises(ValueError, match=words):
        FlowCalibrator(**(SMALL | arguments)).fit(X)


def test_input_is_checked_after_fitting_too(fitted):
    for method in (fitted.transform, fitted.inverse_transform, fitted.score_samples):
        for X, words in (
            (_with(np.nan), "found NaN in row 4, column 1"),
            (embeddings(width=6), "6 features"),
        ):
            with pytest.raises(ValueError, match=words):
                method(X)


def test_tensorflow_does_not_warn_of_many_flows(caplog):
    for _ in range(5):
        FlowCalibrator(**SMALL, epochs=0.2).fit(embeddings())
    assert "retracing" not in caplog.text


def test_held_out_rows_of_another_width_are_refused_at_once():
    rows = np.random.default_rng(0).normal(size=(80, 8))
    with pytest.raises(ValueError, match=r"^held_out: found 6 channels, expected the 8"):
        FlowCalibrator().fit(rows, held_out=rows[:, :6])
