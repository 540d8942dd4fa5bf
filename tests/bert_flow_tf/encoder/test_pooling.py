"""Poolings in the code's meaning and in the paper's words, on layers that the original computed."""

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.pooling import pooling
from bert_flow_tf.errors import UserError


@pytest.fixture(scope="module")
def golden(golden_dir):
    return np.load(golden_dir / "pooling.npz")


@pytest.fixture(scope="module")
def outputs(golden):
    return {
        "sequence_output": tf.constant(golden["sequence_output"]),
        "pooled_output": tf.constant(golden["pooled_output"]),
        "encoder_outputs": [tf.constant(golden[f"encoder_layer_{i}"]) for i in range(3)],
    }


@pytest.mark.differs("`avg-last-N` takes the first layer")
def test_the_papers_poolings_take_the_last_layers_and_the_first_tokens_state(golden, outputs):
    mask = golden["input_mask"]
    first, middle, last = (pooling(f"avg-last-last-{n}", 3)(outputs, mask) for n in (3, 2, 1))
    np.testing.assert_allclose(pooling("avg-last-2", 3)(outputs, mask), (first + last) / 2, atol=1e-6)
    np.testing.assert_allclose(pooling("paper-avg-last-2", 3)(outputs, mask), (middle + last) / 2, atol=1e-6)
    concatenation = pooling("paper-concat-last-2", 3)
    np.testing.assert_array_equal(concatenation(outputs, mask), tf.concat([middle, last], axis=1))
    assert concatenation.vectors == 2
    np.testing.assert_array_equal(pooling("paper-cls", 3)(outputs, mask), golden["encoder_layer_2"][:, 0])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mean", r"^pooling: found 'mean', expected one of avg, cls, avg-last-N"),
        ("avg-last-", r"expected one of"),
        ("avg-last-4", r"expected N from 1 to 3, the encoder's layers"),
        ("avg-last-0", r"expected N from 1 to 3"),
        ("avg-last-12", r"expected N of one digit; the last 12 layers are paper-avg-last-12"),
        ("paper-concat-last-4", r"expected N from 1 to 3"),
    ],
)
def test_other_names_are_refused(name, message):
    with pytest.raises(UserError, match=message):
        pooling(name, 3)
