"""What is gRPC's alone."""

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.serving.client_errors import ServingError
from tests.bert_flow_tf.serving.client_checks import connect, message_of
from tests.bert_flow_tf.serving.stand_in_server import StandIn


def one_by_one(values):
    """As the stock server fills a tensor; `tensor_content` is what tf.make_tensor_proto fills."""
    tensor = tf.make_tensor_proto(0.0, tf.float32, values.shape)
    del tensor.float_val[:]
    tensor.float_val.extend(values.ravel().tolist())
    return tensor


@pytest.mark.parametrize(("width", "tensor_of"), [(3, one_by_one), (30_000, tf.make_tensor_proto)])
def test_values_may_come_one_by_one_or_above_grpcs_usual_limit(width, tensor_of):
    values = np.random.default_rng(0).normal(size=(40, width)).astype(np.float32)
    assert width == 3 or values.nbytes > 4 << 20
    with StandIn(lambda request, version: {"embedding": tensor_of(values)}).grpc() as target, connect(target) as client:
        np.testing.assert_array_equal(client.encode([""] * 40, batch_size=40), values)


def cut(values):
    tensor = tf.make_tensor_proto(values)
    tensor.tensor_content = tensor.tensor_content[:-4]
    return tensor


@pytest.mark.parametrize(
    ("tensor", "found"),
    [
        (np.ones([2, 3]), "found embedding of dtype float64, expected float32"),
        (cut(np.ones([2, 3], np.float32)), "found no embedding in its shape and dtype"),
    ],
)
def test_answer_that_is_no_float32_of_its_shape_is_named(tensor, found):
    with StandIn(lambda request, version: {"embedding": tensor}).grpc() as target, connect(target) as client:
        assert found in message_of(ServingError, client.encode, ["one", "two"])
