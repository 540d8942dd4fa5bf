import copy
import dataclasses
import pickle

import numpy as np
import pytest
import tensorflow as tf

from glow.config import GlowConfig
from glow.flow import Glow
from tests.glow.bijector_checks import perturb

SMALL = GlowConfig(n_levels=2, depth=2, coupling_width=4)
AFFINE = GlowConfig(
    n_levels=2, depth=2, coupling_width=4, coupling="affine", activation="gatu", permutation=False
)
BOTH = pytest.mark.parametrize("config", [SMALL, AFFINE], ids=["additive", "affine"])


def new_flow(config=SMALL, event_size=8, seed=0, **options):
    flow = Glow(config, event_size, seed=seed, **options)
    perturb(flow.trainable_variables, seed=1)
    return flow


def embeddings(n=5, event_size=8, seed=0):
    return tf.constant(np.random.default_rng(seed).normal(size=(n, event_size)), tf.float32)


@pytest.fixture(scope="module", params=[SMALL, AFFINE], ids=["additive", "affine"])
def flow(request):
    """A flow that no test changes."""
    return new_flow(request.param)


def test_each_variable_is_listed_once(flow):
    listed = [id(variable) for variable in flow.trainable_variables + flow.non_trainable_variables]
    assert len(set(listed)) == len(listed) == len(flow.variables)
    assert {id(variable) for variable in flow.bijector.variables} == set(listed)
    fixed = [variable.name.split("/")[-1] for variable in flow.non_trainable_variables]
    assert fixed == ([] if flow.config.permutation else ["P:0", "sign_S:0"] * 4)


def test_initial_values_are_the_originals():
    for path, variable in Glow(GlowConfig(), 16, seed=0).variables_by_path.items():
        value = variable.numpy()
        if "/zeros/" in path:
            np.testing.assert_array_equal(value, 0)
        elif path.endswith("W"):
            assert 0 < np.abs(value).max() < 0.05 * 6
        else:
            assert 0 < np.abs(value).max() <= np.sqrt(6 / (len(value) + 1))


def test_sizes_that_do_not_fit_and_negative_seeds_are_named():
    for event_size, n_levels in ((7, 3), (1, 1), (0, 1), (3, 2)):
        with pytest.raises(
            ValueError, match=f"event_size: found {event_size}, expected {2**n_levels} or more"
        ):
            Glow(GlowConfig(n_levels=n_levels), event_size, seed=0)
    with pytest.raises(ValueError, match="seed: found -1"):
        Glow(SMALL, 8, seed=-1)
    with pytest.raises(ValueError, match=r"expected \[..., 8\]"):
        Glow(SMALL, 8, seed=0).forward(tf.ones([2, 4]))


def test_latent_lists_what_left_first():
    flow = Glow(GlowConfig(n_levels=3, depth=1, coupling_width=2), 8, seed=0)
    for path, variable in flow.variables_by_path.items():
        if path.split("/")[2] == "actnorm":
            variable.assign(tf.zeros_like(variable))
    # Level 0 reverses 0..7 and lets the right half 3 2 1 0 go; level 1 reverses 7 6 5 4 and lets 6
    # 7 go; level 2 reverses 5 4... back.
    np.testing.assert_array_equal(flow.forward(tf.range(8.0)), [3, 2, 1, 0, 6, 7, 5, 4])


@BOTH
def test_density_is_the_bijectors(config):
    flow = new_flow(config, dtype=tf.float64)
    u = tf.constant(np.random.default_rng(0).normal(size=(5, 8)))
    z, bits_per_dim = flow.forward_and_bits_per_dim(u)
    np.testing.assert_allclose(z, flow.forward(u), atol=1e-12)
    log_det = flow.bijector.forward_log_det_jacobian(tf.identity(u), event_ndims=1)
    expected = -0.5 * np.sum(z.numpy() ** 2, axis=-1) - 4 * np.log(2 * np.pi) + log_det
    np.testing.assert_allclose(flow.log_prob(u), expected, atol=1e-10)
    np.testing.assert_allclose(bits_per_dim, -expected / (8 * np.log(2)), atol=1e-10)
    np.testing.assert_allclose(flow.bits_per_dim(u), bits_per_dim, atol=0)
    np.testing.assert_allclose(flow.distribution.log_prob(tf.identity(u)), expected, atol=1e-10)


def test_latents_and_loss_together_run_each_network_once(flow):
    per_step = (3 if flow.config.activation == "relu" else 4) + (
        0 if flow.config.permutation else 3
    )
    for function in (flow.forward_and_bits_per_dim, flow.log_prob, flow.forward, flow.inverse):
        graph = tf.function(function).get_concrete_function(tf.TensorSpec([None, 8])).graph
        products = [op for op in graph.get_operations() if op.type == "MatMul"]
        # The inverse solves against two of the learned permutation's three factors.
        solved = 2 if function == flow.inverse and not flow.config.permutation else 0
        assert len(products) == (per_step - solved) * flow.config.n_levels * flow.config.depth


def test_coupling_dropout_follows_seed_and_step():
    u, dropping = (
        embeddings(200),
        [new_flow(dataclasses.replace(SMALL, coupling_dropout=0.5)) for _ in range(2)],
    )
    for one in dropping:
        np.testing.assert_array_equal(one.bits_per_dim(u), new_flow().bits_per_dim(u))
    first, same = (one.bits_per_dim(u, tf.constant(3)) for one in dropping)
    np.testing.assert_array_equal(first, same)
    assert (first != dropping[0].bits_per_dim(u, tf.constant(4))).numpy().any()
    network = dropping[0].levels[0][2].network
    entering = []
    network(u[:, :4], drop=lambda h: entering.append(h) or h)
    np.testing.assert_array_equal(entering[0], tf.nn.relu(network.first(u[:, :4])))
    np.testing.assert_array_equal(entering[1], tf.nn.relu(network.second[0](entering[0])))


@pytest.mark.parametrize("shape", [[8], [0, 8], [2, 3, 8]])
def test_leading_axes_are_kept(flow, shape):
    flow = new_flow(flow.config, dtype=tf.float64)
    z, bits_per_dim = flow.forward_and_bits_per_dim(tf.ones(shape, tf.float64))
    assert z.shape == flow.inverse(z).shape == shape
    assert bits_per_dim.shape == shape[:-1]
    np.testing.assert_allclose(flow.inverse(z), tf.ones(shape), atol=1e-10)


@BOTH
def test_answers_follow_the_variables_even_for_the_same_tensor(config):
    flow = new_flow(config)

    def answers(u):
        return [
            function(u)
            for function in (flow.forward, flow.bits_per_dim, flow.log_prob, flow.inverse)
        ]

    u = embeddings()
    before = answers(u)
    with tf.GradientTape() as tape:
        log_prob = flow.log_prob(u)
    assert all(
        gradient is not None for gradient in tape.gradient(log_prob, flow.trainable_variables)
    )
    for variable in flow.trainable_variables:
        variable.assign(variable * 0.5)
    for old, new, found in zip(before, answers(embeddings()), answers(u), strict=True):
        assert np.abs(old - new).max() > 1e-3
        np.testing.assert_array_equal(found, new)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copy_has_the_type(copied):
    flow = new_flow(dtype=tf.float64)
    u = tf.cast(embeddings(), tf.float64)
    np.testing.assert_array_equal(copied(flow).forward(u), flow.forward(u))


def test_samples_have_the_flows_density_and_follow_the_seed(flow):
    samples = flow.sample(2000, seed=3)
    assert samples.shape == [2000, 8]
    np.testing.assert_array_equal(flow.sample(2000, seed=3), samples)
    assert np.abs(flow.sample(2000, seed=4) - samples).max() > 0.1
    z = flow.forward(samples).numpy()
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=0.1)
    np.testing.assert_allclose(z.std(axis=0), 1, atol=0.1)


def test_checkpoint_restores_every_variable(flow, tmp_path):
    path = tf.train.Checkpoint(flow=flow).write(str(tmp_path / "flow"))
    restored = Glow(flow.config, 8, seed=7)
    tf.train.Checkpoint(flow=restored).read(path).assert_consumed()
    for a, b in zip(flow.variables, restored.variables, strict=True):
        np.testing.assert_array_equal(a, b)
    stored = [name for name, _ in tf.train.list_variables(path) if name.startswith("flow/")]
    assert len(stored) == len(flow.variables)


def test_initialisation_follows_constant_channels():
    # After one reversal the last level gets channels 4 to 7 of 8 back to front, here all constant.
    generator = np.random.default_rng(0)
    u = generator.normal(size=(32, 8)).astype(np.float32)
    u[:, 4:] = 0.3 + 1e-8 * generator.normal(size=(32, 4))
    flow = Glow(GlowConfig(n_levels=2, depth=1, coupling_width=4), 8, seed=0)
    flow.initialize_from_data(u)
    for path, variable in flow.variables_by_path.items():
        if path.startswith("revnet_1/") and path.endswith("actnorm_scale/logs"):
            np.testing.assert_array_equal(variable, tf.zeros_like(variable), err_msg=path)


def test_initialisation_works_with_a_strategys_variables():
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        flow = new_flow()
    alone, u = new_flow(), embeddings(n=6)
    for one in (flow, alone):
        one.initialize_from_data(u)
    np.testing.assert_array_equal(flow.forward(u), alone.forward(u))


def test_a_flow_shows_its_configuration_and_width():
    shown = repr(Glow(GlowConfig(n_levels=2), 8, seed=3))
    assert shown.startswith("Glow(GlowConfig(") and "event_size=8, seed=3" in shown
