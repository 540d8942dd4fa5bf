"""A folded flow and its dense layers give the flow's latents."""

import dataclasses
import doctest
import importlib

import numpy as np
import pytest
import tensorflow as tf

from glow.config import DEFAULT_CONFIG, GlowConfig
from glow.flow import Glow
from glow.maps import AffineMap
from tests.glow.bijector_checks import perturb

SMALL = GlowConfig(n_levels=2, depth=2, coupling_width=4)


def new_flow(config=SMALL, event_size=16, dtype=tf.float32):
    flow = Glow(config, event_size, seed=0, dtype=dtype)
    perturb(flow.trainable_variables, seed=1)
    return flow


def embeddings(flow, n=5, mean=0.0):
    values = np.random.default_rng(2).normal(size=(n, flow.event_size))
    return tf.constant(values + mean * np.arange(flow.event_size), flow.dtype)


def through(layers, x, dtype):
    """Return the layers' output for `x`, computed in `dtype`."""
    x = np.asarray(x, dtype)
    for layer in layers:
        x = x @ layer.kernel.astype(dtype) + layer.bias.astype(dtype)
        x = np.where(x > 0, x, dtype(layer.slope) * x)
    return x


@pytest.mark.parametrize(
    ("config", "folds", "has_layers"),
    [
        (GlowConfig.load(DEFAULT_CONFIG), True, True),
        (dataclasses.replace(SMALL, activation="gatu"), True, False),
        (dataclasses.replace(SMALL, n_levels=1), True, True),
        (dataclasses.replace(SMALL, depth=1), True, True),
        (dataclasses.replace(SMALL, permutation=False), False, True),
        (dataclasses.replace(SMALL, coupling="affine"), False, False),
    ],
    ids=str,
)
def test_latents_are_those_of_the_flow(config, folds, has_layers):
    # The levels have 31, 15 and 7 channels. In float64 nothing but a wrong formula is above the
    # limit.
    flow = new_flow(config, 31, tf.float64)
    u = embeddings(flow)
    if has_layers:
        np.testing.assert_allclose(
            through(flow.dense_layers(), u, np.float64), flow.forward(u), rtol=0, atol=1e-12
        )
    else:
        with pytest.raises(
            ValueError, match=f"{config.coupling} couplings of activation {config.activation}"
        ):
            flow.dense_layers()
    folded = flow.folded()
    assert (folded is not None) == folds
    if folded:
        np.testing.assert_allclose(folded(u), flow.forward(u), rtol=0, atol=1e-12)
        assert folded(u[:0]).shape == (0, 31)


def test_float32_is_as_near_to_the_exact_latents_as_the_flow():
    def check(found, exact):
        limit = max(2 * np.abs(flow.forward(u) - exact).max(), 1e-6 * np.abs(exact).max())
        assert np.abs(found - exact).max() <= limit

    # Means up to 30 deviations, which the first actnorm takes off.
    flow = new_flow()
    u = embeddings(flow, n=50, mean=2.0)
    flow.initialize_from_data(u)
    double = Glow(SMALL, 16, seed=0, dtype=tf.float64)
    for variable, value in zip(double.variables, flow.variables, strict=True):
        variable.assign(tf.cast(value, tf.float64))
    check(flow.folded()(u), double.forward(tf.cast(u, tf.float64)).numpy())
    # Means up to 3000 deviations.
    flow = new_flow()
    u = embeddings(flow, n=50, mean=200.0)
    flow.initialize_from_data(u)
    layers = flow.dense_layers()
    check(through(layers, u, np.float32), through(layers, u, np.float64))


def test_folded_flow_is_a_few_constant_operations():
    flow = new_flow()
    spec = tf.TensorSpec([None, flow.event_size], tf.float32)
    graph = tf.function(flow.folded()).get_concrete_function(spec).graph
    kinds = [
        node.op
        for node in graph.as_graph_def().node
        if node.op not in ("Const", "Placeholder", "Identity")
    ]
    # There are four steps of three products.
    assert kinds.count("MatMul") == 12
    assert set(kinds) == {"GatherV2", "AddV2", "Mul", "MatMul", "BiasAdd", "Relu"}
    assert not graph.captures
    # Dense layers are two for a step, little wider than the embedding.
    layers = flow.dense_layers()
    assert [layer.kernel.shape for layer in layers] == [
        (16, 16),
        (16, 24),
        *[(24, 24)] * 7,
        (24, 16),
    ]
    assert [layer.slope for layer in layers] == [1.0, *[0.5, 2.0] * 4, 1.0]


def test_what_the_flow_learns_later_does_not_reach_it():
    flow = new_flow()
    u = embeddings(flow)
    folded = flow.folded()
    before = folded(u).numpy()
    assert folded.is_current()
    perturb(flow.trainable_variables, seed=3)
    np.testing.assert_array_equal(folded(u), before)
    assert not folded.is_current()


def test_an_affine_map_is_one_dense_layer():
    rng = np.random.default_rng(0)
    affine = AffineMap(6, rng.normal(size=6), rng.normal(size=(6, 4)))
    (layer,) = affine.dense_layers()
    assert layer.kernel.shape == (6, 4) and layer.bias.dtype == np.float64
    u = rng.normal(size=(5, 6)).astype(np.float32)
    np.testing.assert_allclose(
        through(affine.dense_layers(), u, np.float64), affine.forward(u), atol=1e-5
    )
    assert affine.variables_by_path.keys() == {"mean", "matrix"}


@pytest.mark.parametrize("module", ["calibrator", "chain", "coupling", "flow", "maps"])
def test_examples_in_docstrings_print_what_they_say(module):
    found = doctest.testmod(importlib.import_module(f"glow.{module}"))
    assert found.attempted and not found.failed
