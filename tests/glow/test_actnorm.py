import numpy as np
import pytest
import tensorflow as tf

from glow.actnorm import ActNorm
from glow.parameters import Parameters
from tests.glow.bijector_checks import check_bijector


def actnorm(size, dtype=tf.float32):
    return ActNorm.create(Parameters("flow", seed=3, dtype=dtype).scope("actnorm"), size)


def test_is_a_bijector():
    check_bijector(actnorm(6, tf.float64), 6)


def test_shifts_first_and_scales_by_three_times_the_logarithm():
    bijector = ActNorm(b=tf.Variable([1.0, -2.0]), logs=tf.Variable([0.0, np.log(2.0) / 3]))
    np.testing.assert_allclose(bijector.forward([[5.0, 5.0]]), [[6.0, 6.0]], rtol=1e-6)
    np.testing.assert_allclose(bijector.forward_log_det_jacobian([[5.0, 5.0]]), np.log(2.0), rtol=1e-6)


def test_initialisation_gives_every_channel_mean_zero_and_deviation_one():
    x = np.random.default_rng(0).normal([1.0, -30.0, 0.0], [0.1, 5.0, 2.0], (64, 3)).astype(np.float32)
    bijector = actnorm(3)
    y = bijector.initialize_from_data(x).numpy()
    np.testing.assert_allclose(y.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(y.std(axis=0), 1, atol=1e-4)
    np.testing.assert_array_equal(bijector.forward(x), y)


@pytest.mark.parametrize("mean", [0.0, 0.05, 3.0, -1000.0])
@pytest.mark.parametrize("noise", [0.0, 1e-8, 1e-7])
def test_constant_channels_keep_scale_one(mean, noise):
    generator = np.random.default_rng(0)
    x = generator.normal(0.0, 0.3, (32, 4)).astype(np.float32)
    x[:, 2] = mean + noise * generator.normal(size=32)
    bijector = actnorm(4)
    y = bijector.initialize_from_data(x).numpy()
    logs = bijector.parameters["logs"].numpy()
    assert logs[2] == 0.0
    assert np.abs(y[:, 2]).max() <= max(3e-7, 1e-7 * abs(mean))
    assert (logs[[0, 1, 3]] > 0.3).all()


def test_constant_channels_keep_scale_one_even_when_they_are_the_majority():
    generator = np.random.default_rng(0)
    x = generator.normal(0.05, 1e-8, (32, 10)).astype(np.float32)
    x[:, :2] = generator.normal(0.0, 0.3, (32, 2))
    bijector = actnorm(10)
    bijector.initialize_from_data(x)
    np.testing.assert_array_equal(bijector.parameters["logs"].numpy() == 0.0, [False] * 2 + [True] * 8)


def test_a_quiet_channel_that_still_varies_is_scaled():
    generator = np.random.default_rng(0)
    x = (generator.normal(size=(64, 3)) * [1.0, 1.0, 1e-3]).astype(np.float32)
    bijector = actnorm(3)
    np.testing.assert_allclose(bijector.initialize_from_data(x).numpy().std(axis=0), 1, atol=2e-3)


def test_rounding_left_over_from_constant_channels_upstream_is_not_scaled():
    x = np.random.default_rng(0).normal(0.0, 1e-8, (32, 4)).astype(np.float32)
    bijector = actnorm(4)
    bijector.initialize_from_data(x, typical_deviation=1.0)
    np.testing.assert_array_equal(bijector.parameters["logs"], np.zeros(4))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_not_finite_is_refused_and_changes_nothing(value):
    bijector = actnorm(2)
    before = bijector.forward([[1.0, 2.0]])
    with pytest.raises(ValueError, match="not finite"):
        bijector.initialize_from_data([[0.0, 1.0], [value, 2.0]])
    np.testing.assert_array_equal(bijector.forward([[1.0, 2.0]]), before)


@pytest.mark.parametrize("n", [1, 5])
def test_examples_that_are_all_the_same_are_refused(n):
    with pytest.raises(ValueError, match=f"the {n} examples do not differ"):
        actnorm(2).initialize_from_data([[0.25, 1.7]] * n)
