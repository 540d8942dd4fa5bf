"""The dense layers of a flow give its latents, in matrices of the number and size that are promised."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from glow.config import DEFAULT_CONFIG, GlowConfig
from glow.folded import dense_layers, has_dense_layers
from tests.glow.test_folded import SMALL, embeddings, new_flow


def through(layers, x, dtype):
    """What the layers give for `x`, computed in `dtype`."""
    x = np.asarray(x, dtype)
    for layer in layers:
        x = x @ layer.kernel.astype(dtype) + layer.bias.astype(dtype)
        x = np.where(x > 0, x, dtype(layer.slope) * x)
    return x


@pytest.mark.parametrize(
    "config",
    [
        GlowConfig.from_name(DEFAULT_CONFIG),
        GlowConfig.from_name("config_l2_d3_w32_residual"),
        dataclasses.replace(SMALL, permutation=False),
        dataclasses.replace(SMALL, n_levels=1),
        dataclasses.replace(SMALL, depth=1),
    ],
    ids=str,
)
def test_latents_are_those_of_the_flow(config):
    # 31 channels: levels of 31, 15 and 7. In float64 nothing but a wrong formula is above the limit.
    flow = new_flow(config, 31, tf.float64)
    u = embeddings(flow)
    np.testing.assert_allclose(through(dense_layers(flow), u, np.float64), flow.forward(u), rtol=0, atol=1e-12)


def test_float32_is_as_near_to_the_exact_latents_as_the_flow_where_means_are_large():
    flow = new_flow()
    # Means up to 3000 deviations, which the first actnorm takes off.
    u = embeddings(flow, n=50, mean=200.0)
    flow.initialize_from_data(u)
    layers = dense_layers(flow)
    exact = through(layers, u, np.float64)
    deviation = np.abs(through(layers, u, np.float32) - exact).max()
    assert deviation <= max(2 * np.abs(flow.forward(u) - exact).max(), 1e-6 * np.abs(exact).max())


def test_a_step_takes_two_matrices_little_wider_than_the_embedding():
    flow = new_flow()
    layers = dense_layers(flow)
    assert [layer.kernel.shape for layer in layers] == [(16, 16), (16, 24), *[(24, 24)] * 7, (24, 16)]
    assert [layer.slope for layer in layers] == [1.0, *[0.5, 2.0] * 4, 1.0]


@pytest.mark.parametrize("changed", [{"coupling": "affine"}, {"activation": "gatu"}])
def test_other_couplings_are_refused(changed):
    flow = new_flow(dataclasses.replace(SMALL, **changed))
    assert not has_dense_layers(flow)
    with pytest.raises(ValueError, match="expected additive couplings with relu"):
        dense_layers(flow)
