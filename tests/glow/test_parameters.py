import numpy as np
import pytest
import tensorflow as tf

from glow.parameters import Parameters


def collection(seed=0, dtype=tf.float32):
    return Parameters(seed=seed, dtype=dtype)


def test_a_variable_is_named_by_its_path_alone():
    with tf.name_scope("somewhere"):
        parameters = collection()
        variable = parameters.scope("revnet_0").scope("actnorm").zeros("b", [2])
    assert variable.name == "flow/revnet_0/actnorm/b:0"
    assert parameters.variables == {"revnet_0/actnorm/b": variable}


@pytest.mark.differs("seeded generators")
def test_initial_values_depend_on_seed_and_path_alone():
    first = collection(seed=1).scope("a").normal("W", [4, 4], stddev=0.05).numpy()
    later = collection(seed=1)
    later.normal("W", [3], stddev=1.0)
    tf.random.set_seed(99)
    tf.random.normal([5])
    np.testing.assert_array_equal(later.scope("a").normal("W", [4, 4], stddev=0.05), first)
    assert (collection(seed=2).scope("a").normal("W", [4, 4], stddev=0.05).numpy() != first).all()
    assert (collection(seed=1).scope("b").normal("W", [4, 4], stddev=0.05).numpy() != first).all()


def test_both_precisions_draw_the_same_values():
    double = collection(dtype=tf.float64).glorot_uniform("b", 9).numpy()
    np.testing.assert_array_equal(collection().glorot_uniform("b", 9), double.astype(np.float32))


def test_initial_values_have_their_bound_or_deviation():
    values = np.abs(collection().glorot_uniform("b", 1000).numpy())
    # Glorot's bound is that of one input and 1000 outputs.
    bound = np.sqrt(6 / 1001)
    assert 0.99 * bound < values.max() <= bound
    assert np.median(values) == pytest.approx(bound / 2, rel=0.1)
    assert collection().normal("W", [100, 100], stddev=0.05).numpy().std() == pytest.approx(
        0.05, rel=0.03
    )
