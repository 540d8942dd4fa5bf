"""A flow behind a whitening is a calibration like the flow itself."""

import numpy as np
import pytest
import tensorflow as tf

from glow.calibration import AffineMap, forward_rows
from glow.config import GlowConfig
from glow.flow import Glow
from glow.saved import export_calibration, read_calibration, write_calibration
from glow.whitened import WhitenedFlow

WIDTH = 12


@pytest.fixture(scope="module")
def whitened():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=WIDTH)
    matrix = rng.normal(size=(WIDTH, WIDTH)) + 3 * np.eye(WIDTH)
    flow = Glow(GlowConfig(n_levels=2, depth=2), WIDTH, seed=3)
    for variable in flow.trainable_variables:
        variable.assign_add(0.05 * rng.normal(size=variable.shape))
    return WhitenedFlow(AffineMap(WIDTH, mean, matrix), flow)


@pytest.fixture(scope="module")
def u():
    return np.random.default_rng(1).normal(size=(200, WIDTH)).astype(np.float32)


def test_every_form_of_forward_is_the_flow_of_the_whitened(whitened, u):
    z = whitened.flow.forward(whitened.whitening.forward(u)).numpy()
    np.testing.assert_array_equal(whitened.forward(u), z)
    for rows in (u, u[:5]):
        found = forward_rows(whitened.fixed_forward(), rows)
        np.testing.assert_allclose(found, z[: len(rows)], rtol=1e-5, atol=2e-5)
    x = np.asarray(u, np.float64)
    for layer in whitened.dense_layers():
        x = x @ layer.kernel + layer.bias
        x = np.where(x > 0, x, layer.slope * x)
    np.testing.assert_allclose(x, z, rtol=1e-5, atol=2e-5)


def test_the_inverse_and_the_density_are_those_of_the_whole_map(whitened, u):
    np.testing.assert_allclose(whitened.inverse(whitened.forward(u)), u, rtol=0, atol=1e-4)
    with tf.GradientTape() as tape:
        point = tf.constant(u[:3])
        tape.watch(point)
        z = whitened.forward(point)
    jacobian = tape.batch_jacobian(z, point).numpy().astype(np.float64)
    normal = -0.5 * np.sum(z.numpy() ** 2, axis=1) - WIDTH / 2 * np.log(2 * np.pi)
    expected = normal + np.linalg.slogdet(jacobian)[1]
    np.testing.assert_allclose(whitened.log_prob(u[:3]), expected, rtol=0, atol=1e-3)
    bits = whitened.bits_per_dim(u[:3])
    np.testing.assert_allclose(bits, -expected / (WIDTH * np.log(2)), rtol=0, atol=1e-3)


def test_samples_are_embeddings(whitened):
    drawn = whitened.sample(4000, seed=1)
    np.testing.assert_array_equal(drawn, whitened.sample(4000, seed=1))
    z = whitened.forward(drawn).numpy()
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=0.1)
    np.testing.assert_allclose(np.cov(z.T), np.eye(WIDTH), atol=0.15)


def test_a_folded_form_notices_that_the_whitening_changed(whitened):
    folded = whitened.folded()
    assert bool(folded.is_current())
    variable = whitened.variables_by_path["whitening/mean"]
    before = variable.numpy()
    variable.assign_add(np.ones(WIDTH))
    assert not bool(folded.is_current())
    variable.assign(before)


def test_a_folder_gives_the_same_bits_and_layers(whitened, u, tmp_path):
    write_calibration(tmp_path, whitened)
    again = read_calibration(tmp_path)
    assert isinstance(again, WhitenedFlow)
    np.testing.assert_array_equal(again.forward(u), whitened.forward(u))
    export_calibration(whitened, tmp_path / "layers.npz")
    assert np.load(tmp_path / "layers.npz")["kernel_0"].shape == (WIDTH, WIDTH)
    # The whitening is in the flow's first layer.
    assert len(whitened.dense_layers()) == len(whitened.flow.dense_layers())
    with pytest.raises(ValueError, match="found 8 channels, expected the whitening's 12"):
        WhitenedFlow(whitened.whitening, Glow(GlowConfig(n_levels=2), 8, seed=0))
    with pytest.raises(ValueError, match="found 8 channels, expected the whitening's 12"):
        WhitenedFlow(AffineMap(WIDTH, matrix=np.eye(WIDTH, 8)), whitened.flow)
