"""TF1's optimiser, by hand (tests/golden has what TF1 computed)."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from glow.optimizer import AdamWeightDecay, WarmupLinearDecay, apply_clipped, decays


@pytest.mark.parametrize(("dtype", "rtol"), [(tf.float32, 1e-6), (tf.float64, 1e-12)])
def test_steps_are_those_of_arithmetic_in_float64(dtype, rtol):
    rng = np.random.default_rng(0)
    w = rng.normal(size=7).astype(dtype.as_numpy_dtype).astype(np.float64)
    variable = tf.Variable(w, dtype=dtype, name="kernel")
    optimizer = AdamWeightDecay(0.01)
    optimizer.build([variable])
    m, v = np.zeros(7), np.zeros(7)
    rate, started = float(np.asarray(0.01, np.float32)), w.copy()
    for _ in range(20):
        g = rng.normal(size=7).astype(dtype.as_numpy_dtype).astype(np.float64)
        optimizer.apply_gradients([(tf.constant(g, dtype), variable)])
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - rate * (m / (np.sqrt(v) + 1e-6) + 0.01 * w)
    assert np.abs(w - started).max() > 0.1
    np.testing.assert_allclose(variable.numpy(), w, rtol=rtol, atol=rtol)


def test_each_step_has_the_rate_of_its_own_time():
    variables = [tf.Variable([1.0], name="bias"), tf.Variable([1.0], tf.float64, name="bias")]
    optimizer = AdamWeightDecay(
        tf_keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.5, 0.25])
    )
    optimizer.build(variables)
    children = set(optimizer._trackable_children())
    moved = []
    for _ in range(3):
        before = [variable.numpy()[0] for variable in variables]
        # A moment of 0 and a gradient so large that a step is the rate times (1 - β1) / sqrt(1 -
        # β2) at first.
        optimizer.apply_gradients(
            [(tf.constant([1e6], variable.dtype), variable) for variable in variables]
        )
        moved.append(
            [old - variable.numpy()[0] for old, variable in zip(before, variables, strict=True)]
        )
    m, v = np.cumsum(0.1 * 0.9 ** np.arange(3)), np.cumsum(0.001 * 0.999 ** np.arange(3))
    expected = [0.5, 0.5, 0.25] * m / np.sqrt(v)
    np.testing.assert_allclose(moved, np.stack([expected, expected], axis=1), rtol=1e-5)
    assert set(optimizer._trackable_children()) == children


def test_norms_and_biases_do_not_decay_and_the_flow_does():
    decaying = (
        "transformer/layer_0/intermediate/kernel",
        "flow/revnet_0/revnet_step_0/actnorm/actnorm_center/b",
        "flow/revnet_0/revnet_step_0/actnorm/actnorm_scale/logs",
    )
    others = (
        "bert/encoder/layer_0/output/LayerNorm/gamma",
        "transformer/layer_0/output_layer_norm/gamma",
        "transformer/layer_0/intermediate/bias",
    )
    assert [name for name in (*decaying, *others) if decays(name)] == [*decaying]


def test_gradients_are_clipped_to_a_global_norm_of_one():
    a, b, idle = (tf.Variable([3.0], name=name) for name in ("a", "b", "pooler"))
    optimizer = AdamWeightDecay(1.0)
    optimizer.build([a, b, idle])
    norm = apply_clipped(optimizer, [tf.constant([3.0]), tf.constant([4.0]), None], [a, b, idle])
    assert float(norm) == 5.0
    moments = [m.numpy()[0] for m in optimizer._moments]
    np.testing.assert_allclose(moments, [0.1 * 0.6, 0.1 * 0.8, 0.0], rtol=1e-6)
    # A variable without a gradient stays as it is, without decay.
    assert idle.numpy() == [3.0] and a.numpy() != [3.0]


def test_a_variable_without_gradient_moves_nobody_elses_moments():
    a, idle, b = (tf.Variable(tf.ones(size), name="bias") for size in (1, 2, 3))
    optimizer = AdamWeightDecay(0.1)
    optimizer.build([a, idle, b])
    for _ in range(2):
        apply_clipped(optimizer, [tf.fill([1], 0.4), None, tf.fill([3], 0.4)], [a, idle, b])
    np.testing.assert_allclose(b.numpy(), np.repeat(a.numpy(), 3), rtol=1e-6)
    assert idle.numpy().tolist() == [1.0, 1.0]


@pytest.mark.differs("schedule's first step")
def test_rate_rises_from_the_first_step_and_falls_to_zero():
    # Where warm-up ends, the decay, counted from the start, has already taken a tenth.
    for warmup_steps, rates in (
        (10, {0: 0.1, 5: 0.6, 8: 0.9, 9: 0.9, 49: 0.5, 99: 0.0, 150: 0.0}),
        (0, {0: 0.99, 99: 0.0}),
    ):
        schedule = WarmupLinearDecay(1.0, total_steps=100, warmup_steps=warmup_steps)
        for step, rate in rates.items():
            assert float(schedule(step)) == pytest.approx(rate), step
