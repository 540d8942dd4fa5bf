"""TensorFlow Serving's gRPC interface."""

import math
from typing import Any

import numpy as np

from bert_flow_tf.serving.client_errors import LARGEST_ANSWER, Inputs, ServedModel, most_bytes

_RETRIES = """{"methodConfig": [{"name": [{}], "retryPolicy": {
    "maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
    "retryableStatusCodes": ["UNAVAILABLE"]}}]}"""
_UNLIMITED = (1 << 31) - 1
_CHANNEL_OPTIONS = (
    ("grpc.service_config", _RETRIES),
    # A batch may hold sentences of a megabyte each; by default gRPC retries no request above 256 KB.
    ("grpc.per_rpc_retry_buffer_size", _UNLIMITED),
    ("grpc.max_send_message_length", _UNLIMITED),
    ("grpc.max_receive_message_length", LARGEST_ANSWER),
    # A server that has just come up is found by the next try, not a second later.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # As in the REST client: requests go to the model server directly, whatever the environment says of proxies.
    ("grpc.enable_http_proxy", 0),
)


class GrpcTransport:
    """Calls of one model at `host:port` by gRPC, which itself sends a request again that finds it unavailable."""

    def __init__(self, model: ServedModel, address: str) -> None:
        # The messages are made of TensorFlow's, which takes seconds to load, and REST needs none of it.
        import grpc
        import tensorflow as tf
        from google.protobuf.message import DecodeError
        from tensorflow_serving.apis import get_model_status_pb2 as status_pb2
        from tensorflow_serving.apis import predict_pb2

        self._tf, self._grpc, self._predict_pb2, self._status_pb2 = tf, grpc, predict_pb2, status_pb2
        self._decode_error = DecodeError
        self._model = model
        self._channel = grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)

    def predict(
        self, signature: str, inputs: Inputs, output: str, *, version: int | None, timeout: float
    ) -> np.ndarray:
        """The output's values, as `RestTransport.predict` gives them."""
        request = self._predict_pb2.PredictRequest()
        request.model_spec.name = self._model.name
        request.model_spec.signature_name = signature
        if version is not None:
            request.model_spec.version.value = version
        for name, sentences in inputs.items():
            tensor = request.inputs[name]
            tensor.dtype = self._tf.string.as_datatype_enum
            tensor.tensor_shape.dim.add().size = len(sentences)
            tensor.string_val.extend(sentence.encode("utf-8") for sentence in sentences)
        answer = self._predict_pb2.PredictResponse
        outputs = self._call("PredictionService/Predict", request, answer, timeout, signature, inputs).outputs
        if output not in outputs:
            raise self._model.unexpected(signature, f"outputs {', '.join(sorted(outputs)) or 'none'}", output)
        tensor = outputs[output]
        shape = [dim.size for dim in tensor.tensor_shape.dim]
        try:
            dtype = self._tf.as_dtype(tensor.dtype)
            if dtype != self._tf.float32:
                raise self._model.unexpected(signature, f"{output} of dtype {dtype.name}", "float32")
            if numbers := tensor.float_val:
                values = np.fromiter(numbers, np.float32, len(numbers))
            else:
                values = np.frombuffer(tensor.tensor_content, "<f4").astype(np.float32)
            # `tf.make_ndarray` would fill up any shape, however large, with one number.
            if math.prod(shape) != values.size:
                raise ValueError(f"{values.size} numbers for the shape {shape}")
            return values.reshape(shape)
        except (TypeError, ValueError) as error:
            raise self._model.unexpected(signature, f"no {output} in its shape and dtype ({error})", "one") from error

    def states(self, *, timeout: float) -> list[tuple[int, str, str]]:
        """Versions of the model, as `RestTransport.states` gives them."""
        request = self._status_pb2.GetModelStatusRequest()
        request.model_spec.name = self._model.name
        names = dict(map(reversed, self._status_pb2.ModelVersionStatus.State.items()))
        answer = self._call("ModelService/GetModelStatus", request, self._status_pb2.GetModelStatusResponse, timeout)
        return [
            (status.version, names.get(status.state, "UNKNOWN"), status.status.error_message)
            for status in answer.model_version_status
        ]

    def close(self) -> None:
        """Closes the channel."""
        self._channel.close()

    def _call(
        self, method: str, request: Any, kind: Any, timeout: float, signature: str = "", inputs: Inputs | None = None
    ) -> Any:
        """The answer, a message of this kind."""
        # Not by the stubs, which parse an answer of any size.
        ask = self._channel.unary_unary(f"/tensorflow.serving.{method}", type(request).SerializeToString)
        try:
            data = ask(request, timeout=timeout)
        except self._grpc.RpcError as error:
            code, reason = error.code().name, error.details() or "no reason given"
            if code == "UNAVAILABLE":
                raise self._model.unavailable(reason) from error
            if code == "DEADLINE_EXCEEDED":
                raise self._model.no_answer(timeout) from error
            raise self._model.refusal(code, reason, signature, inputs or {}) from error
        most = most_bytes(inputs)
        if len(data) > most:
            raise self._model.too_large(most)
        try:
            return kind.FromString(data)
        except self._decode_error as error:
            raise self._model.unexpected(signature, "bytes that are no answer", "TensorFlow Serving's") from error
