"""The flow as a calibration: a density that inverts, one seed one result, and mistakes in the input named."""

import json

import numpy as np
import pytest
import tensorflow as tf
from sklearn.base import clone

from bert_flow_tf.evaluation import calibration
from bert_flow_tf.evaluation.calibration import EmbeddingError
from bert_flow_tf.evaluation.flow_calibrator import FlowCalibrator
from bert_flow_tf.optimization import AdamWeightDecay, apply_clipped
from glow import actnorm
from glow.config import GlowConfig
from glow.flow import Glow

SETTINGS = {"batch_size": 8, "seed": 3}


def embeddings(n=64, width=8):
    """Channels of unlike deviations; channel 2 is constant up to rounding."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, width)) * np.linspace(0.2, 1.5, width) + 0.5
    X[:, 2] = 0.7 + 1e-8 * rng.uniform(-1, 1, size=n)
    return X.astype(np.float32)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Arguments of a flow of two levels of one step: TensorFlow takes seconds to trace more."""
    path = tmp_path_factory.mktemp("flow") / "small.json"
    path.write_text(json.dumps(GlowConfig(n_levels=2, depth=1, coupling_width=4).to_dict()))
    return SETTINGS | {"config": str(path)}


@pytest.fixture(scope="module")
def fitted(small):
    return FlowCalibrator(**small, epochs=6.0, learning_rate=1e-2).fit(embeddings())


def test_training_raises_the_likelihood(fitted):
    assert fitted.n_steps_ == len(fitted.losses_) == 48
    assert np.mean(fitted.losses_[-8:]) < np.mean(fitted.losses_[:8]) - 0.1


def test_latents_are_the_flows_and_invert_to_the_embeddings(fitted):
    X = embeddings()
    z = fitted.transform(X)
    assert z.dtype == np.float32
    np.testing.assert_allclose(z, fitted.flow_.forward(X), rtol=0, atol=1e-5)
    np.testing.assert_allclose(fitted.inverse_transform(z), X, rtol=0, atol=1e-4)


def test_score_is_the_log_density_in_nats(fitted):
    X = embeddings()
    np.testing.assert_allclose(fitted.score_samples(X), fitted.flow_.log_prob(X), rtol=1e-5)
    bits = fitted.flow_.bits_per_dim(X).numpy()
    np.testing.assert_allclose(fitted.score_samples(X), -bits * 8 * np.log(2), rtol=1e-5)


def test_steps_are_those_of_the_originals_optimiser_on_pairs_of_sentences(small):
    X = embeddings()
    ours = FlowCalibrator(**small, epochs=0.25).fit(X)
    flow = Glow(GlowConfig.load(small["config"]), 8, seed=3)
    optimizer = AdamWeightDecay(1e-3)
    optimizer.build(list(flow.trainable_variables))
    order = np.random.default_rng([3, 0]).permutation(64)
    for batch in order[:16].reshape(2, 8):
        with tf.GradientTape() as tape:
            # Which four of the eight are "first" sentences makes no difference to the sum of the two means.
            first, second = (tf.reduce_mean(flow.bits_per_dim(X[half])) for half in (batch[:4], batch[4:]))
            loss = first + second
        apply_clipped(optimizer, tape.gradient(loss, flow.trainable_variables), list(flow.trainable_variables))
    for path, expected in flow.variables_by_path.items():
        np.testing.assert_allclose(ours.flow_.variables_by_path[path], expected, rtol=0, atol=2e-6, err_msg=path)


def test_same_seed_gives_the_same_bits_and_another_seed_another_flow(small):
    X = embeddings()
    first, again, other = (FlowCalibrator(**(small | {"seed": seed})).fit(X).transform(X) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-2


def test_every_epoch_sees_every_row_once():
    batches = FlowCalibrator(batch_size=8, epochs=2.5)._batches(rows=20, steps=6)
    assert sorted(batches.reshape(-1)[:20]) == list(range(20))
    assert sorted(batches.reshape(-1)[20:40]) == list(range(20))
    assert batches.reshape(-1)[:20].tolist() != batches.reshape(-1)[20:40].tolist()


def test_data_dependent_initialisation_is_safe_with_a_constant_channel(small):
    X = embeddings()
    z = FlowCalibrator(**small, data_dependent_init=True).fit(X).transform(X)
    assert np.abs(z).max() < 20


def test_constant_channels_are_those_of_actnorm():
    assert calibration.NEGLIGIBLE_FRACTION == actnorm._NEGLIGIBLE_FRACTION
    assert calibration.ROUNDING == actnorm._ROUNDING


def test_registry_hands_its_options_on():
    options = calibration.calibration("flow", **SETTINGS).get_params()
    assert {name: options[name] for name in SETTINGS} == SETTINGS
    assert clone(FlowCalibrator(**SETTINGS)).get_params() == FlowCalibrator(**SETTINGS).get_params()


def _with(value):
    X = embeddings()
    X[4, 1] = value
    return X


@pytest.mark.parametrize(
    ("arguments", "X", "words"),
    [
        ({}, _with(np.nan), r"found NaN in row 4, column 1"),
        ({}, _with(np.inf), r"found inf in row 4, column 1"),
        ({}, embeddings().astype(np.float64) * 1e40, "beyond float32's range"),
        ({}, embeddings()[:7], "found 7 samples and 1.0 epochs, expected at least one step's 8"),
        ({}, embeddings()[:1], "found 1 sample "),
        ({"epochs": 0.1}, embeddings(), "found 64 samples and 0.1 epochs"),
        ({"epochs": 0.0}, embeddings(), "epochs: found 0.0, expected a number above 0"),
        ({"epochs": np.nan}, embeddings(), "epochs: found nan"),
        ({"batch_size": 0}, embeddings(), "batch_size: found 0"),
        ({"learning_rate": -1.0}, embeddings(), "learning_rate: found -1.0"),
        ({"seed": -1}, embeddings(), "seed: found -1, expected 0 or more"),
        ({"config": "config_l9"}, embeddings(), "unknown flow config 'config_l9'"),
        ({}, embeddings(width=6), "event_size: found 6, expected a multiple of 4 for 2 levels"),
        ({"data_dependent_init": True}, np.ones([16, 8], np.float32), "do not differ in any channel"),
        ({}, embeddings() * 1e30, "found a loss of inf .* at step 1 of 8, expected finite ones"),
    ],
)
def test_what_cannot_be_fitted_is_named(small, arguments, X, words):
    # 0.1 epochs of 64 rows are 6 rows, less than a batch of 8.
    with pytest.raises(EmbeddingError, match=words):
        FlowCalibrator(**(small | arguments)).fit(X)


def test_input_is_checked_after_fitting_too(fitted):
    for method in (fitted.transform, fitted.inverse_transform, fitted.score_samples):
        with pytest.raises(EmbeddingError, match="found NaN in row 4, column 1"):
            method(_with(np.nan))
        with pytest.raises(ValueError, match="6 features"):
            method(embeddings(width=6))
