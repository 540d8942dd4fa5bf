"""What is gRPC's alone."""

import numpy as np

from tests.bert_flow_tf.serving.client_checks import AMPLE, SENTENCES, connect, expected_embeddings, refused_answer
from tests.bert_flow_tf.serving.stand_in_server import StandIn, toy_answer


def test_grpc_values_may_come_one_by_one(stand_in):
    # The stock server fills `float_val`; `tensor_content` is what tf.make_tensor_proto fills.
    import tensorflow as tf

    def answer(request, version):
        values = toy_answer(request, version)["embedding"]
        tensor = tf.make_tensor_proto(0.0, tf.float32, values.shape)
        del tensor.float_val[:]
        tensor.float_val.extend(values.ravel().tolist())
        return {"embedding": tensor}

    with StandIn(answer).grpc() as target, connect(target, timeout=AMPLE) as client:
        np.testing.assert_array_equal(client.encode(SENTENCES), expected_embeddings(SENTENCES))


def test_answer_above_grpcs_usual_limit_arrives_whole():
    values = np.random.default_rng(0).normal(size=(40, 30_000)).astype(np.float32)
    assert values.nbytes > 4 << 20
    stand_in = StandIn(lambda request, version: {"embedding": values})
    with stand_in.grpc() as target, connect(target, timeout=AMPLE) as client:
        np.testing.assert_array_equal(client.encode([""] * 40, batch_size=40), values)


def test_grpc_answer_of_another_dtype_is_named():
    assert "found embedding of dtype float64, expected float32" in refused_answer(
        "grpc", {"embedding": np.ones([2, 3], np.float64)}
    )
    assert "found embedding of dtype" in refused_answer("grpc", {"embedding": np.ones([2, 3], np.int32)})


def test_grpc_answer_whose_values_do_not_fill_its_shape_is_named():
    import tensorflow as tf

    tensor = tf.make_tensor_proto(np.ones([2, 3], np.float32))
    tensor.tensor_content = tensor.tensor_content[:-4]
    assert "values that do not fill its shape" in refused_answer("grpc", {"embedding": tensor})
