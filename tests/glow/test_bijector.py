import tensorflow as tf

from glow.actnorm import ActNorm


def test_a_bijector_equals_itself_alone():
    b, logs = tf.Variable([1.0, -2.0]), tf.Variable([0.0, 0.5])
    one, other = ActNorm(b, logs), ActNorm(b, logs)
    assert one == one and hash(one) == hash(one)
    assert one != other and len({one, other}) == 2
