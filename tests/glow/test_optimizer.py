"""TF1's optimiser, by hand (tests/golden has what TF1 computed)."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from glow.optimizer import AdamWeightDecay, apply_clipped, decays


@pytest.mark.parametrize(("dtype", "rtol"), [(tf.float32, 1e-6), (tf.float64, 1e-12)])
def test_steps_are_those_of_arithmetic_in_float64(dtype, rtol):
    rng = np.random.default_rng(0)
    w = rng.normal(size=7).astype(dtype.as_numpy_dtype).astype(np.float64)
    variable = tf.Variable(w, dtype=dtype, name="kernel")
    optimizer = AdamWeightDecay(0.01)
    optimizer.build([variable])
    m, v = np.zeros(7), np.zeros(7)
    rate, begun = float(np.asarray(0.01, np.float32)), w.copy()
    for _ in range(20):
        g = rng.normal(size=7).astype(dtype.as_numpy_dtype).astype(np.float64)
        optimizer.apply_gradients([(tf.constant(g, dtype), variable)])
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - rate * (m / (np.sqrt(v) + 1e-6) + 0.01 * w)
    assert np.abs(w - begun).max() > 0.1
    np.testing.assert_allclose(variable.numpy(), w, rtol=rtol, atol=rtol)


def test_each_step_has_the_rate_of_its_own_time_and_leaves_no_trace():
    variables = [tf.Variable([1.0], name="bias"), tf.Variable([1.0], tf.float64, name="bias")]
    optimizer = AdamWeightDecay(tf_keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.5, 0.25]))
    optimizer.build(variables)
    children = set(optimizer._trackable_children())
    moved = []
    for _ in range(3):
        before = [variable.numpy()[0] for variable in variables]
        # A moment of 0 and a gradient so large that a step is the rate times (1 - β1) / sqrt(1 - β2) at first.
        optimizer.apply_gradients([(tf.constant([1e6], variable.dtype), variable) for variable in variables])
        moved.append([old - variable.numpy()[0] for old, variable in zip(before, variables, strict=True)])
    m, v = np.cumsum(0.1 * 0.9 ** np.arange(3)), np.cumsum(0.001 * 0.999 ** np.arange(3))
    expected = [0.5, 0.5, 0.25] * m / np.sqrt(v)
    np.testing.assert_allclose(moved, np.stack([expected, expected], axis=1), rtol=1e-5)
    assert set(optimizer._trackable_children()) == children


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bert/encoder/layer_0/output/LayerNorm/gamma", False),
        ("transformer/layer_0/output_layer_norm/gamma", False),
        ("transformer/layer_0/intermediate/bias", False),
        ("transformer/layer_0/intermediate/kernel", True),
        ("flow/revnet_0/revnet_step_0/actnorm/actnorm_center/b", True),
        ("flow/revnet_0/revnet_step_0/actnorm/actnorm_scale/logs", True),
    ],
)
def test_norms_and_biases_do_not_decay_and_the_flow_does(name, expected):
    assert decays(name) is expected


def test_variables_without_a_gradient_stay_as_they_are():
    moving, idle = tf.Variable([3.0], name="kernel"), tf.Variable([3.0], name="pooler")
    optimizer = AdamWeightDecay(0.1)
    optimizer.build([moving, idle])
    norm = apply_clipped(optimizer, [tf.constant([4.0]), None], [moving, idle])
    assert float(norm) == 4.0
    assert idle.numpy() == [3.0]
    assert moving.numpy() != [3.0]


def test_gradients_are_clipped_to_a_global_norm_of_one():
    a, b = tf.Variable([0.0], name="a"), tf.Variable([0.0], name="b")
    optimizer = AdamWeightDecay(1.0)
    optimizer.build([a, b])
    norm = apply_clipped(optimizer, [tf.constant([3.0]), tf.constant([4.0])], [a, b])
    assert float(norm) == 5.0
    np.testing.assert_allclose([m.numpy()[0] for m in optimizer._moments], [0.1 * 0.6, 0.1 * 0.8], rtol=1e-6)
