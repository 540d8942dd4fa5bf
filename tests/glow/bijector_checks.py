"""Checks of every bijector of vectors in float64."""

import numpy as np
import tensorflow as tf

TOLERANCE = 1e-8


def perturb(variables, seed):
    """Change every variable, so that zero-initialised networks take part.

    The rest of the initial value shrinks: in few channels Glorot's bound is so wide that actnorms
    scale a hundredfold, and a random point's inverse through several of them is too large to come
    back to eight digits.
    """
    generator = np.random.default_rng(seed)
    for variable in variables:
        variable.assign(0.3 * variable + generator.normal(0.0, 0.1, variable.shape))


def check_bijector(bijector, event_size, seed=0):
    """Asserts what `check_density` and `check_shapes` do."""
    check_density(bijector, event_size, seed)
    check_shapes(bijector, event_size, seed)


def check_density(bijector, event_size, seed=0):
    """Check round trips, and log-determinants against autodiff."""
    x = tf.constant(np.random.default_rng(seed).normal(size=(3, event_size)))
    y = bijector.forward(x)
    expected = np.linalg.slogdet(_jacobian(bijector, x))[1]

    # A new tensor object each time: TFP answers from its cache for one it has met.
    np.testing.assert_allclose(bijector.inverse(tf.identity(y)), x, rtol=0, atol=TOLERANCE)
    z = bijector.inverse(tf.identity(x))
    np.testing.assert_allclose(bijector.forward(tf.identity(z)), x, rtol=0, atol=TOLERANCE)

    # Use new tensors, because TFP caches x and y by object.
    for tensor in (x, tf.identity(x)):
        log_det = bijector.forward_log_det_jacobian(tensor, event_ndims=1)
        np.testing.assert_allclose(np.broadcast_to(log_det, [3]), expected, rtol=0, atol=TOLERANCE)
    for tensor in (y, tf.identity(y)):
        log_det = bijector.inverse_log_det_jacobian(tensor, event_ndims=1)
        np.testing.assert_allclose(np.broadcast_to(log_det, [3]), -expected, rtol=0, atol=TOLERANCE)


def check_shapes(bijector, event_size, seed=0):
    """Asserts that any leading axes are kept, in a graph too."""
    x = tf.constant(np.random.default_rng(seed).normal(size=(3, event_size)))
    for function in (bijector.forward, bijector.inverse):
        expected = function(tf.identity(x)).numpy()
        for shape in ([event_size], [1, event_size], [2, 3, event_size]):
            part = x if len(shape) == 3 else x[0]
            output = function(tf.constant(np.broadcast_to(part, shape)))
            assert output.shape == shape
            reference = expected if len(shape) == 3 else expected[0]
            np.testing.assert_allclose(
                output, np.broadcast_to(reference, shape), rtol=0, atol=TOLERANCE
            )
        traced = tf.function(function).get_concrete_function(
            tf.TensorSpec([None, event_size], tf.float64)
        )
        assert traced.output_shapes.as_list() == [None, event_size]
        np.testing.assert_allclose(traced(x), expected, rtol=0, atol=TOLERANCE)


def _jacobian(bijector, x):
    """Return dy/dx [n, out, in] from one backward pass."""
    n, event_size = x.shape
    copies = tf.repeat(x, event_size, axis=0)
    with tf.GradientTape() as tape:
        tape.watch(copies)
        picked = tf.linalg.diag_part(
            tf.reshape(bijector.forward(copies), [n, event_size, event_size])
        )
    return tf.reshape(tape.gradient(picked, copies), [n, event_size, event_size]).numpy()
