"""What is gRPC's alone."""

import concurrent.futures
import contextlib
import itertools
import socket
import threading
import time

import grpc
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


def claiming(count, *shape):
    """So many numbers for a shape; TensorFlow fills one up with the last."""
    tensor = tf.make_tensor_proto(np.ones(count, np.float32))
    del tensor.tensor_shape.dim[:]
    for size in shape:
        tensor.tensor_shape.dim.add().size = size
    return tensor


def of_type(number):
    tensor = tf.make_tensor_proto(np.ones([2, 3], np.float32))
    tensor.dtype = number
    return tensor


@pytest.mark.parametrize(
    ("tensor", "found"),
    [
        (np.ones([2, 3]), "found embedding of dtype float64, expected float32"),
        (cut(np.ones([2, 3], np.float32)), "found no embedding in its shape and dtype"),
        (
            claiming(1, 2, 10**12),
            "found no embedding in its shape and dtype (1 numbers for the shape [2, 1000000000000])",
        ),
        (claiming(6, 2, -1), "found no embedding in its shape and dtype (6 numbers for the shape [2, -1])"),
        (of_type(99), "found no embedding in its shape and dtype"),
        (np.ones([2, 500_000], np.float32), "found more than 1.5 MiB of an answer, expected TensorFlow Serving's"),
    ],
)
def test_answer_that_is_no_float32_of_its_shape_is_named(tensor, found):
    with StandIn(lambda request, version: {"embedding": tensor}).grpc() as target, connect(target) as client:
        assert found in message_of(ServingError, client.encode, ["one", "two"])


def test_bytes_that_are_no_answer_are_named():
    class Service(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(lambda request, context: b"\xff" * 9)

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1), [Service()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with connect(f"grpc://127.0.0.1:{port}") as client:
            for ask in (lambda: client.encode(["one"]), client.status):
                assert "found bytes that are no answer" in message_of(ServingError, ask)
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize("beginning", [b"", b"\0\0\0\4\0\0\0\0\0", b"\0\x40\0\1\4\0\0\0\1"])
def test_deadline_holds_against_an_answer_that_trickles(beginning):
    """Nothing at all, HTTP/2's settings, and these with the beginning of a header, byte by byte."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            # The client may hang up.
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    for byte in itertools.chain(beginning, itertools.repeat(0, 100)):
                        connection.sendall(bytes([byte]))
                        time.sleep(0.05)

        thread = threading.Thread(target=serve)
        thread.start()
        with connect(f"grpc://127.0.0.1:{listener.getsockname()[1]}", timeout=0.5) as client:
            start = time.monotonic()
            with pytest.raises(ServingError):
                client.encode(["one"])
            # The whole would take 5 s.
            assert time.monotonic() - start < 4
        thread.join()
