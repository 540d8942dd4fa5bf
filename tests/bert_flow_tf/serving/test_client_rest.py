"""What is REST's alone."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from bert_flow_tf.serving import client as client_module
from bert_flow_tf.serving.client_errors import NoAnswerInTimeError, ServingError
from tests.bert_flow_tf.serving.client_checks import (
    AMPLE,
    connect,
    expected_embeddings,
    free_port,
    message_of,
    refused_answer,
    target_at,
)
from tests.bert_flow_tf.serving.stand_in_server import RawAnswer, StandIn, toy_answer

_WITHOUT_TENSORFLOW = """
import sys
from bert_flow_tf.serving.client import connect
with connect(sys.argv[1], "bert_flow", timeout=60) as client:
    client.wait_until_ready()
    print(client.encode(["one"]).shape, client.similarity(["one"], ["two"]).shape, client.status())
print([name for name in sys.modules if name.split(".")[0] in ("tensorflow", "grpc", "requests")])
"""


def test_rest_uses_a_connection_again(stand_in):
    with stand_in.rest() as target, connect(target, timeout=AMPLE) as client:
        client.encode(["one"])
        [connection] = client._transport._idle
        socket_before = connection.sock
        client.encode(["two"])
        assert client._transport._idle[0].sock is socket_before


def test_rest_connection_that_the_server_closed_meanwhile_costs_no_try(stand_in, monkeypatch):
    monkeypatch.setattr(client_module, "_ATTEMPTS", 1)
    port = free_port()
    with connect(target_at("rest", port), timeout=AMPLE) as client:
        for _ in range(2):
            with stand_in.rest(port):
                np.testing.assert_array_equal(client.encode(["one"]), expected_embeddings(["one"]))


def test_rest_deadline_holds_against_an_answer_that_trickles():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def trickle():
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while not stop.wait(0.05):
                    connection.sendall(b" ")

        thread = threading.Thread(target=trickle)
        thread.start()
        start = time.monotonic()
        with connect(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.4) as client:
            message_of(NoAnswerInTimeError, client.encode, ["one"])
        assert time.monotonic() - start < 5
        stop.set()
        thread.join()


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([[1.0, 2.0], [3.0]], "embedding with rows of several lengths"),
        ([["1.0"], ["2.0"]], "embedding with values that are no numbers"),
        ([[None], [1.0]], "embedding with values that are no numbers"),
        ([[True], [False]], "embedding with values that are no numbers"),
        ([[1e39], [1.0]], "an infinity in embedding number 0"),
    ],
)
def test_rest_answer_that_is_no_array_of_numbers_is_named(values, found):
    assert f"found {found}" in refused_answer("rest", RawAnswer(json.dumps({"outputs": values}).encode()))


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"<html>\n<title>Welcome</title>", "'<html> <title>Welcome</title>' for POST /v1/models/bert_flow:predict"),
        (b"", "'' for POST /v1/models/bert_flow:predict, expected a JSON object"),
        (b"[1, 2]", "'[1, 2]' for POST"),
        (b'{"outputs": [[1.0', "for POST /v1/models/bert_flow:predict, expected a JSON object"),
        (b"\xff\xfe", "for POST /v1/models/bert_flow:predict, expected a JSON object"),
        (b"[" * 100_000, "for POST /v1/models/bert_flow:predict, expected a JSON object"),
        (b'{"predictions": []}', "found an answer with predictions, expected outputs"),
        (b"{}", "found an answer with nothing, expected outputs"),
    ],
)
def test_rest_answer_that_is_not_the_json_asked_for_is_named(body, found):
    assert found in refused_answer("rest", RawAnswer(body))


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        (404, b"<h1>Not Found</h1>", "HTTP 404 for POST /v1/models/bert_flow:predict (<h1>Not Found</h1>), expected"),
        (301, b"", "HTTP 301 for POST /v1/models/bert_flow:predict (Moved Permanently), expected TensorFlow Serving"),
        (401, b'{"message": "no key"}', "HTTP 401"),
        (500, b'{ "error": "it\\\'s \\342\\200\\234" }', "HTTP 500"),  # older servers' errors are not quite JSON
    ],
)
def test_rest_status_is_named(status, body, found):
    assert found in refused_answer("rest", RawAnswer(body, status))


def test_rest_answer_that_breaks_off_is_asked_for_again(stand_in):
    def answer(request, version):
        if len(stand_in.requests) == 1:
            return RawAnswer(b'{"outputs"', told_length=1000)
        return toy_answer(request, version)

    stand_in.answer = answer
    with stand_in.rest() as target, connect(target, timeout=AMPLE) as client:
        np.testing.assert_array_equal(client.encode(["one"]), expected_embeddings(["one"]))


def test_rest_status_without_versions_is_named(stand_in):
    with stand_in.rest() as target, connect(target, timeout=AMPLE) as client:
        stand_in.states = lambda model: [("first", "AVAILABLE", "")]
        message = message_of(ServingError, client.status)
    assert "expected model_version_status, a list of versions and states" in message


def test_https_at_a_port_without_tls_is_one_line(stand_in):
    with stand_in.rest() as target, connect(target.replace("http", "https"), timeout=AMPLE) as client:
        assert "found no TLS that can be trusted" in message_of(ServingError, client.encode, ["one"])


def test_rest_target_may_have_a_path_and_no_port(stand_in):
    client = connect("http://gateway/team a/")
    assert (client._transport._host, client._transport._port) == ("gateway", 80)
    assert client._transport._path == "/team%20a/v1/models/bert_flow"
    assert connect("https://gateway")._transport._port == 443


def test_name_of_a_model_is_quoted_in_the_path():
    stand_in = StandIn(model="flow 2:é/x")
    with stand_in.rest() as target, connect(target, "flow 2:é/x", timeout=AMPLE) as client:
        np.testing.assert_array_equal(client.encode(["one"]), expected_embeddings(["one"]))


def test_rest_needs_neither_tensorflow_nor_grpc(stand_in):
    with stand_in.rest() as target:
        command = [sys.executable, "-c", _WITHOUT_TENSORFLOW, target]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(1, 8) (1,) [VersionState(version=1, state='AVAILABLE')]\n[]\n"
