"""What is REST's alone. Answers that no model server gives come from a socket that sends them byte by byte."""

import contextlib
import itertools
import json
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from bert_flow_tf.serving.client_errors import NoAnswerInTimeError, ServingError, UnavailableError
from tests.bert_flow_tf.serving.client_checks import connect, expected_embeddings, message_of
from tests.bert_flow_tf.serving.stand_in_server import StandIn

_WITHOUT_TENSORFLOW = """
import sys
from bert_flow_tf.serving.client import connect
with connect(sys.argv[1], "bert_flow", timeout=60) as client:
    client.wait_until_ready()
    print(client.encode(["one"]).shape, client.similarity(["one"], ["two"]).shape, client.status())
print([name for name in sys.modules if name.split(".")[0] in ("tensorflow", "grpc", "requests")])
"""


def read_request(connection):
    """Reads a request whole: what is left unread when a connection is closed resets it, and the client asks again."""
    length = 0
    with connection.makefile("rb") as stream:
        while (line := stream.readline()).strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        stream.read(length)


@contextlib.contextmanager
def answering(*answers, pause=0.0):
    """The target of a server whose n-th connection gets the pieces of bytes of the n-th answer, and is closed then."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            for pieces in answers:
                connection, _ = listener.accept()
                # The client may hang up.
                with connection, contextlib.suppress(OSError):
                    read_request(connection)
                    for piece in pieces:
                        connection.sendall(piece)
                        time.sleep(pause)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def http_answer(body, status="200 OK", length=None):
    """The pieces of an answer; `length` is what it says of its body's."""
    return [f"HTTP/1.1 {status}\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n".encode(), body]


def refused_answer(answer, ask="encode", *arguments):
    """The line with which the client refuses the answer."""
    with answering(answer) as target, connect(target) as client:
        message = message_of(ServingError, getattr(client, ask), *arguments)
    assert message.startswith(target)
    return message


def test_a_connection_is_used_again(stand_in):
    with stand_in.rest() as target, connect(target) as client:
        client.encode(["one", "two", "three"], batch_size=1)
    assert len(stand_in.connections) == 1


@pytest.mark.parametrize(
    "beginning", [b"HTTP/1.1 200 OK\r\nX-Padding: ", b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"]
)
def test_deadline_holds_against_an_answer_that_trickles(beginning):
    trickle = itertools.chain([beginning], itertools.repeat(b" ", 200))
    with answering(trickle, pause=0.05) as target, connect(target, timeout=0.4) as client:
        start = time.monotonic()
        message_of(NoAnswerInTimeError, client.encode, ["one"])
        # The whole answer would take 10 s.
        assert 0.4 <= time.monotonic() - start < 5


def test_answer_without_an_end_is_refused():
    flood = itertools.chain([b"HTTP/1.1 200 OK\r\n\r\n"], itertools.repeat(b" " * (1 << 20), 100))
    assert "found more than 1.25 MiB of an answer, expected" in refused_answer(flood, "encode", ["one"])


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"outputs": [[1.0, 2.0], [3.0]]}', "embedding with rows of several lengths, expected one length"),
        (b'{"outputs": [["a"], ["b"]]}', "embedding with values that are no numbers, expected numbers"),
        (b'{"outputs": [[null], [1.0]]}', "embedding with values that are no numbers, expected numbers"),
        (b'{"outputs": [[1e300], [1.0]]}', "an infinity in embedding number 0 (from 0), expected finite numbers"),
        (b'{"predictions": []}', "an answer with predictions, expected outputs"),
        (b"{}", "an answer with nothing, expected outputs"),
        (b"<html>\n<title>Hi</title>", "'<html>\\n<title>Hi</title>' for POST /v1/models/bert_flow:predict, expected"),
        (b"[1, 2]", "'[1, 2]' for POST"),
        (b"\xff\xfe", "for POST /v1/models/bert_flow:predict, expected TensorFlow Serving's REST interface"),
        (b"[" * 20_000, "for POST /v1/models/bert_flow:predict, expected TensorFlow Serving's REST interface"),
    ],
)
def test_answer_that_is_not_the_json_asked_for_is_named(body, found):
    message = refused_answer(http_answer(body), "encode", ["one", "two"])
    assert found in message.partition("found ")[2]


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        ("404 Not Found", b"<h1>None here</h1>", "found HTTP 404 for POST /v1/models/bert_flow:predict: <h1>None here"),
        ("301 Moved Permanently", b"", "found HTTP 301 for POST /v1/models/bert_flow:predict: Moved Permanently, exp"),
        ("401 Unauthorized", b'{"message": "no key"}', "found HTTP 401"),
        # Older servers' errors are not quite JSON.
        ("500 Internal Server Error", b'{ "error": "it\\\'s \\342\\200\\234" }', "found HTTP 500"),
    ],
)
def test_status_that_is_not_the_model_servers_is_named(status, body, found):
    assert found in refused_answer(http_answer(body, status), "encode", ["one"])


# What seems to break off is asked for again, three times.
@pytest.mark.parametrize(("length", "kind", "times"), [("9" * 30, UnavailableError, 4), ("-5", ServingError, 1)])
def test_length_that_no_answer_has_is_one_line(length, kind, times):
    answer = f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n[]".encode()
    with answering(*[[answer]] * times) as target, connect(target) as client:
        message_of(kind, client.encode, ["one"])


def test_answer_that_is_not_http_is_named():
    assert "found SSH-2.0-OpenSSH" in refused_answer([b"SSH-2.0-OpenSSH\r\n"], "encode", ["one"])


@pytest.mark.parametrize("version", ['"first"', "Infinity", "-1", "1.5", "true", r'"\ud800"'])
def test_status_without_versions_is_named(version):
    body = f'{{"model_version_status": [{{"version": {version}, "state": "AVAILABLE"}}]}}'.encode()
    assert "expected model_version_status, a list of versions and states" in refused_answer(http_answer(body), "status")


def test_answer_that_breaks_off_is_asked_for_again():
    rest = json.dumps({"outputs": expected_embeddings(["one"]).tolist()}).encode()
    with answering([], http_answer(b'{"outputs"', length=1000), http_answer(rest)) as target, connect(target) as client:
        np.testing.assert_array_equal(client.encode(["one"]), expected_embeddings(["one"]))


def test_address_that_does_not_work_is_one_line(stand_in):
    with stand_in.rest() as target, connect(target.replace("http", "https")) as client:
        assert "found [SSL: WRONG_VERSION_NUMBER]" in message_of(ServingError, client.encode, ["one"])
    with connect("http://a..b:8501") as client:
        assert "found Failed to parse: 'a..b'" in message_of(ServingError, client.encode, ["one"])


def test_model_and_path_before_it_are_quoted():
    stand_in = StandIn(model="flow 2:é/x")
    with stand_in.rest() as target, connect(target, "flow 2:é/x") as client:
        np.testing.assert_array_equal(client.encode(["one"]), expected_embeddings(["one"]))
    refused = "/team%20a/v1/models/bert_flow:predict: gone, expected"
    with answering(http_answer(b"gone", "404 Not Found")) as target, connect(f"{target}/team a/") as client:
        assert refused in message_of(ServingError, client.encode, ["one"])


def test_rest_needs_neither_tensorflow_nor_grpc(stand_in):
    with stand_in.rest() as target:
        command = [sys.executable, "-c", _WITHOUT_TENSORFLOW, target]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(1, 8) (1,) [VersionState(version=1, state='AVAILABLE')]\n[]\n"
