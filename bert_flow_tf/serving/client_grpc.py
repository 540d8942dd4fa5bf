"""TensorFlow Serving's gRPC interface.

Its messages are made of TensorFlow's, so the first client of this kind imports TensorFlow, which takes seconds.
"""

from bert_flow_tf.serving.client_errors import NotFoundError, ServingError, asked, no_answer, one_line, unavailable

_CHANNEL_OPTIONS = (
    # A batch may hold sentences of a megabyte each; the default allows an answer of 4 MB.
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # A server that has just come up is found by the next try, not a second later.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # As in the REST client: a model server is spoken to directly, whatever the environment says of proxies.
    ("grpc.enable_http_proxy", 0),
)


class GrpcTransport:
    """Calls of one model by gRPC. Threads may share it.

    Args:
      target: `grpc://host:port`, for messages.
      address: `host:port`.
      model: its name at the server.
    """

    def __init__(self, target, address, model):
        # TensorFlow takes seconds to load, and REST needs none of it.
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis import (
            get_model_status_pb2,
            model_service_pb2_grpc,
            predict_pb2,
            prediction_service_pb2_grpc,
        )

        self._tf, self._grpc = tf, grpc
        self._predict_request = predict_pb2.PredictRequest
        self._status_request = get_model_status_pb2.GetModelStatusRequest
        self._state_name = get_model_status_pb2.ModelVersionStatus.State.Name
        self._target, self._model = target, model
        self._channel = grpc.insecure_channel(address, options=_CHANNEL_OPTIONS)
        self._prediction = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(self._channel)

    def predict(self, signature, inputs, output, *, version, timeout):
        """The output's values, a float32 array of the shape that the server gave them.

        Args:
          signature: name of the signature.
          inputs: dict of input's name -> list of str.
          output: the output's name.
          version: int, or None for the newest that the server has.
          timeout: seconds until there must be an answer.

        Raises:
          ServingError: there is no such answer; `UnavailableError`, `NotFoundError` and `NoAnswerInTimeError` say why.
        """
        request = self._predict_request()
        request.model_spec.name = self._model
        request.model_spec.signature_name = signature
        if version is not None:
            request.model_spec.version.value = version
        for name, sentences in inputs.items():
            tensor = request.inputs[name]
            tensor.dtype = self._tf.string.as_datatype_enum
            tensor.tensor_shape.dim.add().size = len(sentences)
            tensor.string_val.extend(sentence.encode("utf-8") for sentence in sentences)
        outputs = self._call(self._prediction.Predict, request, timeout, asked(signature, inputs)).outputs
        if output not in outputs:
            raise self._unexpected(signature, f"outputs {', '.join(sorted(outputs)) or 'none'}", output)
        tensor = outputs[output]
        if tensor.dtype != self._tf.float32.as_datatype_enum:
            raise self._unexpected(signature, f"{output} of dtype {self._dtype_name(tensor.dtype)}", "float32")
        try:
            return self._tf.make_ndarray(tensor)
        except ValueError as error:
            raise self._unexpected(
                signature, f"{output} with values that do not fill its shape", "all of them"
            ) from error

    def states(self, *, timeout):
        """List of (version, state, message) of the model's versions; the message is empty where all is well.

        Raises:
          ServingError: as `predict`.
        """
        request = self._status_request()
        request.model_spec.name = self._model
        answer = self._call(self._models.GetModelStatus, request, timeout)
        return [
            (status.version, self._state_name(status.state), status.status.error_message)
            for status in answer.model_version_status
        ]

    def close(self):
        """Closes the channel."""
        self._channel.close()

    def _call(self, method, request, timeout, asked_for=None):
        codes = self._grpc.StatusCode
        try:
            return method(request, timeout=timeout)
        except self._grpc.RpcError as error:
            code, reason = error.code(), error.details() or "no reason given"
            if code is codes.UNAVAILABLE:
                raise unavailable(self._target, reason) from error
            if code is codes.DEADLINE_EXCEEDED:
                raise no_answer(self._target, timeout) from error
            kind = NotFoundError if code is codes.NOT_FOUND else ServingError
            where = f"{self._target}, model {self._model}"
            if asked_for and code is codes.INVALID_ARGUMENT:
                where += f", {asked_for}"
            raise kind(f"{where}: {code.name}: {one_line(reason)}") from error

    def _unexpected(self, signature, found, expected):
        return ServingError(
            f"{self._target}, model {self._model}, signature {signature}: found {found}, expected {expected}"
        )

    def _dtype_name(self, enum):
        names = {dtype.as_datatype_enum: dtype.name for dtype in (self._tf.float64, self._tf.bfloat16, self._tf.half)}
        return names.get(enum, f"number {enum}")
