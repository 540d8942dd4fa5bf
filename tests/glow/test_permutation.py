import numpy as np
import pytest
import tensorflow as tf

from glow.bijectors import LearnedPermutation, Reversal
from glow.parameters import Parameters
from tests.glow.bijector_checks import check_bijector, perturb


def learned(size, dtype=tf.float64):
    parameters = Parameters(seed=3, dtype=dtype)
    return LearnedPermutation(parameters, size), parameters.variables


@pytest.mark.differs("permutation")
def test_reversal_reverses_the_channels_and_nothing_else():
    check_bijector(Reversal(), 6)
    x = tf.reshape(tf.range(6.0), [2, 3])
    np.testing.assert_array_equal(Reversal().forward(x), [[2, 1, 0], [5, 4, 3]])
    # The original multiplies by a constant matrix.
    graph = tf.function(Reversal().forward).get_concrete_function(x).graph
    assert "MatMul" not in {operation.type for operation in graph.get_operations()}


def test_learned_permutation_starts_orthogonal_along_the_mean():
    w = learned(256)[0].forward(tf.eye(256, dtype=tf.float64)).numpy()
    np.testing.assert_allclose(w @ w.T, np.eye(256), atol=1e-12)
    # Uniform numbers give .87; normal ones, .01.
    assert abs(w[:, 0].sum()) / 16 == pytest.approx(0.87, abs=0.02)


def test_learned_permutation_multiplies_from_the_right_by_p_l_u():
    bijector, variables = learned(6)
    perturb([v for v in variables.values() if v.trainable], seed=1)
    check_bijector(bijector, 6)
    p, lower, upper, sign_s, log_s = (
        variables[name].numpy() for name in ("P", "L", "U", "sign_S", "log_S")
    )
    w = p @ (np.tril(lower, -1) + np.eye(6)) @ (np.triu(upper, 1) + np.diag(sign_s * np.exp(log_s)))
    x = np.random.default_rng(0).normal(size=(4, 6))
    np.testing.assert_allclose(bijector.forward(x), x @ w, atol=1e-12)


def test_only_the_triangles_learn():
    bijector, variables = learned(4)
    x = tf.constant(np.random.default_rng(0).normal(size=(3, 4)))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(bijector.forward(x) ** 2)
    gradient = dict(
        zip(("L", "U"), tape.gradient(loss, [variables["L"], variables["U"]]), strict=True)
    )
    assert np.abs(np.tril(gradient["L"], -1)).max() > 0
    np.testing.assert_array_equal(np.triu(gradient["L"]), 0)
    assert np.abs(np.triu(gradient["U"], 1)).max() > 0
    np.testing.assert_array_equal(np.tril(gradient["U"]), 0)
    assert not variables["P"].trainable
    assert not variables["sign_S"].trainable
