"""Poolings on layers that the original computed."""

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.pooling import pooling
from tests.refusals import user_error


@pytest.mark.differs("`avg-last-N` takes the first layer")
def test_the_papers_poolings_take_the_last_layers(golden_dir):
    golden = np.load(golden_dir / "pooling.npz")
    outputs, mask = (
        {"encoder_outputs": [golden[f"encoder_layer_{i}"] for i in range(3)]},
        golden["input_mask"],
    )
    first, middle, last = (pooling(f"avg-last-last-{n}", 3)(outputs, mask) for n in (3, 2, 1))
    np.testing.assert_allclose(
        pooling("avg-last-2", 3)(outputs, mask), (first + last) / 2, atol=1e-6
    )
    np.testing.assert_allclose(
        pooling("paper-avg-last-2", 3)(outputs, mask), (middle + last) / 2, atol=1e-6
    )
    concatenated = pooling("paper-concat-last-2", 3)(outputs, mask)
    np.testing.assert_array_equal(concatenated, tf.concat([middle, last], axis=1))
    np.testing.assert_array_equal(
        pooling("paper-cls", 3)(outputs, mask), golden["encoder_layer_2"][:, 0]
    )


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("avg-last-", "avg-last-N"),
        ("avg-last-4", "3"),
        ("avg-last-0", "3"),
        ("avg-last-12", "paper-"),
    ],
)
def test_an_unknown_pooling_is_named_with_the_known_ones(name, part):
    with user_error(f"pooling: found {name!r}", part):
        pooling(name, 3)
