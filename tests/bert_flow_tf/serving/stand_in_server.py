"""TensorFlow Serving's gRPC and REST interfaces in front of a function, for tests of the client.

What the interfaces look like, how errors are worded and which HTTP status stands for which code is as in TensorFlow
Serving's own source (`prediction_service_impl.cc`, `http_rest_api_handler.cc`, `http_server.cc`, `json_tensor.cc`,
`get_model_status_impl.cc`).
"""

import concurrent.futures
import contextlib
import hashlib
import http.server
import json
import re
import socket
import threading
import urllib.parse
from typing import NamedTuple

import numpy as np

WIDTH = 8
_HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?(:predict)?")


class Refusal(Exception):
    """An answer that is an error: name of a status code, and message."""


class Request(NamedTuple):
    """One call of predict: `version` is None where the client named none."""

    signature: str
    inputs: dict
    version: int | None


def toy_embedding(sentence, version=1):
    """Numbers float32 [8] of all magnitudes, that depend on every byte of the sentence and on the version."""
    digest = hashlib.sha256(f"{version}:{sentence}".encode()).digest()
    values = np.frombuffer(digest, np.uint32).astype(np.float64)
    return ((values - 2**31) * 10.0 ** (np.arange(WIDTH) - 12)).astype(np.float32)


def toy_cosine(a, b, version=1):
    """float32 between -1 and 1 that depends on both sentences and their order."""
    u, v = toy_embedding(a, version).astype(np.float64), toy_embedding(f"{b}, second", version).astype(np.float64)
    return np.float32(u @ v / np.linalg.norm(u) / np.linalg.norm(v))


def toy_answer(request, version):
    """dict of the outputs of an export's signatures, from toy embeddings."""
    if request.signature == "similarity":
        pairs = zip(request.inputs["sentence_a"], request.inputs["sentence_b"], strict=True)
        return {"cosine": np.array([toy_cosine(a, b, version) for a, b in pairs], np.float32)}
    if request.signature not in ("serving_default", "pooled"):
        raise Refusal("INVALID_ARGUMENT", f'Serving signature name: "{request.signature}" not found in signature def')
    before_flow = request.signature == "pooled"
    rows = [toy_embedding(sentence, version) + before_flow for sentence in request.inputs["sentences"]]
    return {"embedding": np.array(rows, np.float32).reshape(-1, WIDTH)}


class StandIn:
    """A model server of one model, both interfaces with the same answers.

    Args:
      answer: function (`Request`, version that answers) -> dict of output's name -> array, or for gRPC TensorProto; it
        may raise `Refusal`.
      model: the model's name.

    Attributes:
      versions: dict of version -> state, or -> (state, message); the newest that is AVAILABLE answers where none is
        asked for.
      requests: list of the `Request`s so far.
      connections: list of the sockets that REST accepted so far.
    """

    def __init__(self, answer=toy_answer, model="bert_flow"):
        self.answer, self.model = answer, model
        self.versions = {1: "AVAILABLE"}
        self.requests, self.connections = [], []

    def predict(self, model, version, signature, inputs):
        request = Request(signature, inputs, version)
        self.requests.append(request)
        available = [number for number, state in dict(self.versions).items() if state == "AVAILABLE"]
        if model != self.model or not available or version not in (None, *available):
            kind = f"Latest({model})" if version is None else f"Specific({model}, {version})"
            raise Refusal("NOT_FOUND", f"Servable not found for request: {kind}")
        return self.answer(request, max(available) if version is None else version)

    def states(self, model):
        """List of (version, state, error message), newest first."""
        if model != self.model or not self.versions:
            raise Refusal("NOT_FOUND", f"Could not find any versions of model {model}")
        states = {number: (state, "") if isinstance(state, str) else state for number, state in self.versions.items()}
        return [(number, *states[number]) for number in sorted(states, reverse=True)]

    @contextlib.contextmanager
    def grpc(self, port=0):
        """The target of its gRPC interface, as long as the block lasts."""
        import grpc

        server = grpc.server(
            concurrent.futures.ThreadPoolExecutor(16),
            options=[("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)],
        )
        _add_services(server, self)
        port = server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        try:
            yield f"grpc://127.0.0.1:{port}"
        finally:
            server.stop(grace=None).wait()

    @contextlib.contextmanager
    def rest(self, port=0):
        """The target of its REST interface, as long as the block lasts; connections are cut at its end."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), _rest_handler(self))
        # Nothing is said of clients that hang up, as those whose deadline has passed do.
        server.handle_error = lambda *error: None
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            for connection in self.connections:
                with contextlib.suppress(OSError):  # the client closed it first
                    connection.shutdown(socket.SHUT_RDWR)


def _add_services(server, stand_in):
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import (
        get_model_status_pb2,
        model_service_pb2_grpc,
        predict_pb2,
        prediction_service_pb2_grpc,
    )

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer, model_service_pb2_grpc.ModelServiceServicer):
        def Predict(self, request, context):
            spec = request.model_spec
            inputs = {name: [s.decode() for s in tf.make_ndarray(value)] for name, value in request.inputs.items()}
            version = spec.version.value if spec.HasField("version") else None
            response = predict_pb2.PredictResponse()
            try:
                outputs = stand_in.predict(spec.name, version, spec.signature_name, inputs)
            except Refusal as refusal:
                context.abort(grpc.StatusCode[refusal.args[0]], refusal.args[1])
            for name, value in outputs.items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(value))
            return response

        def GetModelStatus(self, request, context):
            response = get_model_status_pb2.GetModelStatusResponse()
            try:
                states = stand_in.states(request.model_spec.name)
            except Refusal as refusal:
                context.abort(grpc.StatusCode[refusal.args[0]], refusal.args[1])
            for number, state, message in states:
                response.model_version_status.add(version=number, state=state).status.error_message = message
            return response

    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(Service(), server)


def _rest_handler(stand_in):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self):
            super().setup()
            stand_in.connections.append(self.connection)

        def do_GET(self):
            model, version, predict = _PATH.fullmatch(self.path).groups()
            try:
                status, answer = 200, (self.predict if predict else self.status)(urllib.parse.unquote(model), version)
            except Refusal as refusal:
                code, message = refusal.args
                status, answer = _HTTP_STATUS[code], {"error": message}
            body = json.dumps(answer, indent=4).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def status(self, model, version):
            states = [
                {"version": str(number), "state": state, "status": {"error_code": "OK", "error_message": message}}
                for number, state, message in stand_in.states(model)
            ]
            return {"model_version_status": states}

        def predict(self, model, version):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            signature = request.get("signature_name", "serving_default")
            outputs = stand_in.predict(model, int(version) if version else None, signature, request["inputs"])
            values = {name: _shortest(np.asarray(array)) for name, array in outputs.items()}
            # One output is given without its name.
            return {"outputs": values if len(values) > 1 else next(iter(values.values()))}

        def log_message(self, *args):
            pass

    return Handler


def _shortest(array):
    """Nested lists with the fewest digits that a float32 is known by, as TensorFlow Serving writes them."""
    if array.ndim:
        return [_shortest(row) for row in array]
    return array.item() if array.dtype.kind in "USO" else float(str(array))
