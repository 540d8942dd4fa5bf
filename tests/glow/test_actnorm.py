import numpy as np
import pytest
import tensorflow as tf

from glow.bijectors import ActNorm
from glow.parameters import Parameters
from tests.glow.bijector_checks import check_bijector


def actnorm(size, dtype=tf.float32):
    return ActNorm(Parameters(seed=3, dtype=dtype).scope("actnorm"), size)


def normal(n, deviations, mean=0.0):
    """Random float32 [n, D] of these deviations of the channels."""
    return (
        np.random.default_rng(0).normal(mean, deviations, (n, len(deviations))).astype(np.float32)
    )


def test_is_a_bijector():
    check_bijector(actnorm(6, tf.float64), 6)


def test_a_bijector_equals_itself_alone():
    one, other = actnorm(2), actnorm(2)
    assert one == one and hash(one) == hash(one)
    assert one != other and len({one, other}) == 2


def test_shifts_first_and_scales_by_three_times_the_logarithm():
    bijector = actnorm(2)
    bijector.b.assign([1.0, -2.0])
    bijector.logs.assign([0.0, np.log(2.0) / 3])
    np.testing.assert_allclose(bijector.forward([[5.0, 5.0]]), [[6.0, 6.0]], rtol=1e-6)
    np.testing.assert_allclose(
        bijector.forward_log_det_jacobian([[5.0, 5.0]]), np.log(2.0), rtol=1e-6
    )


def test_initialisation_normalises_every_channel():
    # The last channel is quiet, but it varies.
    x = normal(64, [0.1, 5.0, 2.0, 1e-3], mean=[1.0, -30.0, 0.0, 0.0])
    bijector = actnorm(4)
    y = bijector.initialize_from_data(x).numpy()
    np.testing.assert_allclose(y.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_array_less(np.abs(y.std(axis=0) - 1), [1e-4, 1e-4, 1e-4, 2e-3])
    np.testing.assert_array_equal(bijector.forward(x), y)


@pytest.mark.parametrize("mean", [0.0, 0.05, 3.0, -1000.0])
@pytest.mark.parametrize("noise", [0.0, 1e-8, 1e-7])
def test_constant_channels_keep_scale_one(mean, noise):
    x = normal(32, [0.3] * 4)
    x[:, 2] = mean + noise * np.random.default_rng(1).normal(size=32)
    bijector = actnorm(4)
    y = bijector.initialize_from_data(x).numpy()
    logs = bijector.logs.numpy()
    assert logs[2] == 0.0
    assert np.abs(y[:, 2]).max() <= max(3e-7, 1e-7 * abs(mean))
    assert (logs[[0, 1, 3]] > 0.3).all()


@pytest.mark.parametrize(
    ("deviations", "mean", "typical_deviation"),
    [
        ([0.3] * 2 + [1e-8] * 8, [0.0] * 2 + [0.05] * 8, 0.0),
        # Constant channels before it leave such rounding.
        ([1e-8] * 4, 0.0, 1.0),
    ],
)
def test_a_majority_of_constant_channels_keeps_scale_one(deviations, mean, typical_deviation):
    bijector = actnorm(len(deviations))
    bijector.initialize_from_data(normal(32, deviations, mean), typical_deviation)
    np.testing.assert_array_equal(bijector.logs.numpy() == 0.0, np.array(deviations) < 0.1)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ([[0.0, 1.0], [np.inf, 2.0]], "found NaN or infinity"),
        ([[0.25, 1.7]], "the 1 examples do not differ"),
        ([[0.25, 1.7]] * 5, "the 5 examples do not differ"),
    ],
)
def test_what_cannot_initialise_is_refused_and_changes_nothing(x, message):
    bijector = actnorm(2)
    before = bijector.forward([[1.0, 2.0]])
    with pytest.raises(ValueError, match=message):
        bijector.initialize_from_data(x)
    np.testing.assert_array_equal(bijector.forward([[1.0, 2.0]]), before)
