"""A folded flow gives the flow's latents, to the rounding of float32, in a few operations."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from glow.config import DEFAULT_CONFIG, GlowConfig
from glow.flow import Glow
from glow.folded import FoldedFlow, can_fold
from tests.glow.bijector_checks import perturb

SMALL = GlowConfig(n_levels=2, depth=2, coupling_width=4)


def new_flow(config=SMALL, event_size=16, dtype=tf.float32):
    flow = Glow(config, event_size, seed=0, dtype=dtype)
    perturb(flow.trainable_variables, seed=1)
    return flow


def embeddings(flow, n=5, mean=0.0):
    values = np.random.default_rng(2).normal(size=(n, flow.event_size))
    return tf.constant(values + mean * np.arange(flow.event_size), flow.dtype)


@pytest.mark.parametrize(
    "config",
    [
        GlowConfig.from_name(DEFAULT_CONFIG),
        GlowConfig.from_name("config_l2_d3_w32_residual"),
        dataclasses.replace(SMALL, activation="gatu"),
        dataclasses.replace(SMALL, activation="gatu", coupling_residual=True),
        dataclasses.replace(SMALL, n_levels=1),
        dataclasses.replace(SMALL, depth=1),
    ],
    ids=str,
)
def test_additive_flows_are_folded_exactly(config):
    # 31 channels: levels of 31, 15 and 7. In float64 nothing but a wrong formula is above the limit.
    flow = new_flow(config, 31, tf.float64)
    u = embeddings(flow)
    np.testing.assert_allclose(FoldedFlow(flow)(u), flow.forward(u), rtol=0, atol=1e-12)
    assert FoldedFlow(flow)(u[:0]).shape == (0, 31)


def test_float32_is_as_near_to_the_exact_latents_as_the_flow_where_means_are_large():
    flow = new_flow()
    # Means up to 30 deviations, which the first actnorm takes off.
    u = embeddings(flow, n=50, mean=2.0)
    flow.initialize_from_data(u)
    exact = Glow(SMALL, 16, seed=0, dtype=tf.float64)
    for variable, value in zip(exact.variables, flow.variables, strict=True):
        variable.assign(tf.cast(value, tf.float64))
    z = exact.forward(tf.cast(u, tf.float64)).numpy()
    assert np.abs(FoldedFlow(flow)(u) - z).max() <= max(2 * np.abs(flow.forward(u) - z).max(), 1e-6 * np.abs(z).max())


def test_folded_flow_is_a_few_constant_operations():
    flow = new_flow()
    spec = tf.TensorSpec([None, flow.event_size], tf.float32)
    graph = tf.function(FoldedFlow(flow)).get_concrete_function(spec).graph
    kinds = [node.op for node in graph.as_graph_def().node if node.op not in ("Const", "Placeholder", "Identity")]
    # Four steps of three products.
    assert kinds.count("MatMul") == 12
    assert set(kinds) == {"GatherV2", "AddV2", "Mul", "MatMul", "BiasAdd", "Relu"}
    assert not graph.captures


def test_what_the_flow_learns_later_does_not_reach_it():
    flow = new_flow()
    u = embeddings(flow)
    folded = FoldedFlow(flow)
    before = folded(u).numpy()
    assert folded.is_current()
    perturb(flow.trainable_variables, seed=3)
    np.testing.assert_array_equal(folded(u), before)
    assert not folded.is_current()


@pytest.mark.parametrize("changes", [{"coupling": "affine"}, {"permutation": False}])
def test_flow_that_cannot_be_folded_is_refused(changes):
    flow = new_flow(dataclasses.replace(SMALL, **changes))
    assert not can_fold(flow)
    with pytest.raises(ValueError, match="expected additive couplings and reversals"):
        FoldedFlow(flow)
