import numpy as np
import pytest
import tensorflow as tf

from glow.coupling import AdditiveCoupling, AffineCoupling, ConvStack
from glow.parameters import Parameters
from tests.glow.bijector_checks import check_bijector, perturb


def conv_stack(out_size, **options):
    parameters = Parameters(seed=3, dtype=tf.float64)
    network = ConvStack(parameters, 3, out_size, width=5, **options)
    perturb(parameters.variables.values(), seed=1)
    return network, parameters.variables


def reference_network(variables, x, *, activation="relu"):
    """Return `ConvStack`'s output and activations' inputs by its formula."""
    v = {path: variable.numpy() for path, variable in variables.items()}
    entering = []

    def block(name, h):
        actnorm = f"conv_block/{name}/actnorm"
        scale = np.exp(3 * v[f"{actnorm}/actnorm_scale/logs"])
        entering.append((h @ v[f"conv_block/{name}/W"] + v[f"{actnorm}/actnorm_center/b"]) * scale)
        return entering[-1]

    h1 = np.maximum(block("1_1", x), 0)
    if activation == "gatu":
        h = np.tanh(block("1_tanh", h1)) / (1 + np.exp(-block("1_sigm", h1)))
    else:
        h = np.maximum(block("1_2", h1), 0)
    return (h @ v["zeros/W"] + v["zeros/b"]) * np.exp(3 * v["zeros/logs"]), entering


@pytest.mark.parametrize("activation", ["relu", "gatu"])
def test_network_computes_the_documented_formula(activation):
    network, variables = conv_stack(4, activation=activation)
    x = np.random.default_rng(0).normal(size=(7, 3))
    expected, _ = reference_network(variables, x, activation=activation)
    np.testing.assert_allclose(network(tf.constant(x)), expected, atol=1e-12)


@pytest.mark.parametrize("activation", ["relu", "gatu"])
def test_couplings_are_bijectors(activation):
    check_bijector(AdditiveCoupling(conv_stack(3, activation=activation)[0], dtype=tf.float64), 6)
    check_bijector(AffineCoupling(conv_stack(6, activation=activation)[0], dtype=tf.float64), 6)


def test_new_network_gives_zeros():
    network = ConvStack(Parameters(seed=3, dtype=tf.float32), 3, 4, width=5)
    np.testing.assert_array_equal(network(tf.ones([2, 3])), np.zeros([2, 4]))


def test_affine_coupling_takes_shifts_from_even_channels():
    def network(x1):
        return tf.concat([x1 * 0 + [[10.0, -2.0]], x1 * 0 + [[20.0, 3.0]]], axis=-1)

    y = AffineCoupling(network).forward([[1.0, 2.0, 3.0, 4.0]]).numpy()
    np.testing.assert_allclose(
        y, [[1.0, 2.0, (3.0 + 10.0) * 0.5, (4.0 + 20.0) / (1 + np.exp(-5.0))]], rtol=1e-6
    )


@pytest.mark.parametrize("activation", ["relu", "gatu"])
def test_initialisation_normalises_what_enters_activations(activation):
    network, variables = conv_stack(4, activation=activation)
    x = np.random.default_rng(0).normal(size=(50, 3))
    network.initialize_from_data(tf.constant(x), typical_deviation=1.0)
    for values in reference_network(variables, x, activation=activation)[1]:
        np.testing.assert_allclose(values.mean(axis=0), 0, atol=1e-9)
        np.testing.assert_allclose(values.std(axis=0), 1, atol=1e-4)
