"""What the client gives and what it ends with, by gRPC and by REST, against servers that a test makes."""

import concurrent.futures
import contextlib
import json
import shutil
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.serving.client import connect
from bert_flow_tf.serving.client_errors import NoAnswerInTimeError, NotFoundError, ServingError, UnavailableError
from tests.bert_flow_tf.serving.stand_in_server import (
    WIDTH,
    RawAnswer,
    Refusal,
    StandIn,
    toy_answer,
    toy_cosine,
    toy_embedding,
)

SENTENCES = [
    "A small boat crosses the lake.",
    "",
    "Señora Müller ordered a crème brûlée",
    "東京は首都",
    'quotes " and \\ and a tab\t, a line\nbreak',
    "an emoji 🙂 and one of several code points 👩‍👩‍👧",
    "a NUL \0 within",
]
TRANSPORTS = ["grpc", "rest"]
# Enough for a busy machine; where a deadline is to pass, the tests take one of their own.
AMPLE = 60.0


@pytest.fixture(params=TRANSPORTS)
def transport(request):
    return request.param


@pytest.fixture
def stand_in():
    return StandIn()


@pytest.fixture
def client(stand_in, transport):
    with served(stand_in, transport) as target, connect(target, timeout=AMPLE) as client:
        yield client


def served(stand_in, transport, port=0):
    return getattr(stand_in, transport)(port)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def target_at(transport, port):
    return f"{'grpc' if transport == 'grpc' else 'http'}://127.0.0.1:{port}"


def message_of(kind, call, *arguments, **options):
    """The one line of the error, of just this kind, that the call raises."""
    with pytest.raises(UserError) as raised:
        call(*arguments, **options)
    assert type(raised.value) is kind, raised.value
    message = str(raised.value)
    assert "\n" not in message
    return message


def expected_embeddings(sentences, version=1):
    return np.array([toy_embedding(sentence, version) for sentence in sentences])


# What it gives.


def test_embeddings_are_the_servers_to_the_bit_and_in_order(client, stand_in):
    found = client.encode(SENTENCES)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected_embeddings(SENTENCES))
    assert [request.inputs for request in stand_in.requests] == [{"sentences": SENTENCES}]


def test_grpc_and_rest_give_the_same_numbers(stand_in):
    found = {}
    for transport in TRANSPORTS:
        with served(stand_in, transport) as target, connect(target, timeout=AMPLE) as client:
            found[transport] = client.encode(SENTENCES), client.similarity(SENTENCES, SENTENCES[::-1])
    np.testing.assert_array_equal(found["grpc"][0], found["rest"][0])
    np.testing.assert_array_equal(found["grpc"][1], found["rest"][1])


def test_every_kind_of_float32_survives(transport):
    bits = np.random.default_rng(0).integers(0, 1 << 32, 4000, np.uint64).astype(np.uint32).view(np.float32)
    edges = np.array([0.0, -0.0, 1e-45, 1.1754942e-38, 3.4028235e38, 0.1, 1 / 3], np.float32)
    values = np.concatenate([edges, bits[np.isfinite(bits)]])
    stand_in = StandIn(lambda request, version: {"embedding": values[None]})
    with served(stand_in, transport) as target, connect(target, timeout=AMPLE) as client:
        found = client.encode(["one"])
    np.testing.assert_array_equal(found.view(np.uint32), values[None].view(np.uint32))


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


def test_batches_hold_at_most_so_many_and_keep_the_order(client, stand_in):
    sentences = [f"sentence {i}" for i in range(11)]
    np.testing.assert_array_equal(client.encode(sentences, batch_size=4), expected_embeddings(sentences))
    assert [request.inputs["sentences"] for request in stand_in.requests] == [
        sentences[:4],
        sentences[4:8],
        sentences[8:],
    ]


def test_cosines_are_of_the_pairs_in_their_order(client, stand_in):
    a, b = [f"a{i}" for i in range(5)], [f"b{i}" for i in range(5)]
    found = client.similarity(a, b, batch_size=2)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [toy_cosine(x, y) for x, y in zip(a, b, strict=True)])
    assert [len(request.inputs["sentence_b"]) for request in stand_in.requests] == [2, 2, 1]


def test_signature_is_the_one_asked_for(client):
    np.testing.assert_array_equal(client.encode(["one"], signature="pooled"), expected_embeddings(["one"]) + 1)


def test_no_sentences_are_an_array_of_no_rows_with_the_models_width(client, stand_in):
    found = client.encode([])
    assert (found.shape, found.dtype) == ((0, WIDTH), np.float32)
    assert [request.inputs for request in stand_in.requests] == [{"sentences": [""]}]


def test_no_pairs_are_no_cosines_and_no_request(client, stand_in):
    found = client.similarity([], [])
    assert (found.shape, found.dtype) == ((0,), np.float32)
    assert stand_in.requests == []


def test_sentence_of_a_megabyte_arrives_whole(client):
    sentences = ["word 🙂 " * 100_001, "short"]
    assert len(sentences[0].encode()) > 1_000_000
    np.testing.assert_array_equal(client.encode(sentences), expected_embeddings(sentences))


def test_answer_above_grpcs_usual_limit_arrives_whole():
    values = np.random.default_rng(0).normal(size=(40, 30_000)).astype(np.float32)
    assert values.nbytes > 4 << 20
    stand_in = StandIn(lambda request, version: {"embedding": values})
    with stand_in.grpc() as target, connect(target, timeout=AMPLE) as client:
        np.testing.assert_array_equal(client.encode([""] * 40, batch_size=40), values)


def test_threads_share_a_client_and_each_gets_its_own_answers(client):
    def work(thread):
        for i in range(6):
            sentences = [f"thread {thread}, call {i}, sentence {k}" for k in range(5)]
            np.testing.assert_array_equal(client.encode(sentences, batch_size=2), expected_embeddings(sentences))

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(work, thread) for thread in range(16)]:
            done.result()


def test_rest_uses_a_connection_again(stand_in):
    with stand_in.rest() as target, connect(target, timeout=AMPLE) as client:
        client.encode(["one"])
        [connection] = client._transport._idle
        socket_before = connection.sock
        client.encode(["two"])
        assert client._transport._idle[0].sock is socket_before


# Versions.


def test_version_is_the_one_asked_for_and_the_newest_otherwise(stand_in, transport):
    stand_in.versions = {1: "AVAILABLE", 2: "AVAILABLE", 3: "LOADING"}
    with served(stand_in, transport) as target:
        for version, answers in ((1, 1), (2, 2), (None, 2)):
            with connect(target, version=version, timeout=AMPLE) as client:
                np.testing.assert_array_equal(client.encode(["one"]), expected_embeddings(["one"], answers))


def test_rows_of_one_call_are_of_one_version_although_a_newer_one_comes_between(stand_in, transport):
    sentences = [f"sentence {i}" for i in range(6)]

    def answer(request, version):
        stand_in.versions[2] = "AVAILABLE"
        return toy_answer(request, version)

    stand_in.answer = answer
    with served(stand_in, transport) as target, connect(target, timeout=AMPLE) as client:
        np.testing.assert_array_equal(client.encode(sentences, batch_size=2), expected_embeddings(sentences, 1))
        np.testing.assert_array_equal(client.encode(sentences, batch_size=2), expected_embeddings(sentences, 2))


def test_call_begins_anew_where_its_version_goes_out_of_service(stand_in, transport):
    sentences = [f"sentence {i}" for i in range(6)]

    def answer(request, version):
        stand_in.versions = {1: "END", 2: "AVAILABLE"}
        return toy_answer(request, version)

    stand_in.answer = answer
    with served(stand_in, transport) as target, connect(target, timeout=AMPLE) as client:
        np.testing.assert_array_equal(client.encode(sentences, batch_size=2), expected_embeddings(sentences, 2))


def test_server_whose_versions_never_stay_is_given_up(stand_in, transport):
    def answer(request, version):
        stand_in.versions = {version + 1: "AVAILABLE"}
        return toy_answer(request, version)

    stand_in.answer = answer
    with served(stand_in, transport) as target, connect(target, timeout=AMPLE) as client:
        message = message_of(NotFoundError, client.encode, ["one", "two"], batch_size=1)
    assert message.endswith("version 4 not AVAILABLE, found version 5 AVAILABLE")


def test_status_lists_versions_with_states_and_reasons(client, stand_in):
    stand_in.versions = {3: "LOADING", 1: "AVAILABLE", 2: ("END", "Op type not\nregistered")}
    assert client.status() == [(1, "AVAILABLE"), (2, "END: Op type not registered"), (3, "LOADING")]
    assert client.status()[0].state == "AVAILABLE"


def check_hot_swap(targets, swap, expected_by_version):
    """Four threads ask all the time while `swap` brings version 2: no call fails, none mixes versions, 2 answers last.

    Args:
      targets: addresses of a server of version 1; half of the threads ask at each of two.
      swap: function that returns when version 2 is in service.
      expected_by_version: dict of 1 and 2 -> embeddings of `SENTENCES`.
    """
    stop = threading.Event()

    def versions_seen(target):
        seen = []
        with connect(target, timeout=AMPLE) as client:
            while not stop.is_set():
                found = client.encode(SENTENCES, batch_size=3)
                close = [
                    version
                    for version, expected in expected_by_version.items()
                    if np.allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
                ]
                assert len(close) == 1, "an answer of neither version, or of both"
                seen += close
        return seen

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        threads = [pool.submit(versions_seen, target) for target in targets * (4 // len(targets))]
        try:
            swap()
            time.sleep(0.3)
        finally:
            stop.set()
        for seen in (thread.result() for thread in threads):
            assert seen == sorted(seen), "an older version answered after a newer one"
            assert seen[-1] == 2


def test_hot_swap_under_load(stand_in, transport):
    def swap():
        time.sleep(0.3)
        stand_in.versions = {1: "AVAILABLE", 2: "LOADING"}
        time.sleep(0.1)
        stand_in.versions = {1: "AVAILABLE", 2: "AVAILABLE"}
        stand_in.versions = {1: "END", 2: "AVAILABLE"}

    expected = {version: expected_embeddings(SENTENCES, version) for version in (1, 2)}
    with served(stand_in, transport) as target:
        check_hot_swap([target], swap, expected)
    assert {request.version for request in stand_in.requests} == {1, 2}


# Servers that are not there, or not yet.


def test_nobody_at_the_address_is_named_after_a_few_tries(transport):
    target = target_at(transport, free_port())
    with connect(target, timeout=AMPLE) as client:
        for call in (lambda: client.encode(["one"]), client.status):
            message = message_of(UnavailableError, call)
            assert message.startswith(f"{target}: unavailable (")
            assert "refused" in message
            assert message.endswith("expected a model server that answers; 4 tries")


def test_host_without_an_address_is_named(transport):
    scheme = "grpc" if transport == "grpc" else "http"
    with connect(f"{scheme}://no-such-host.invalid:8500", timeout=0.5) as client:
        message = message_of(UnavailableError, client.encode, ["one"])
    assert message.startswith(f"{scheme}://no-such-host.invalid:8500: unavailable (")


def test_unavailable_server_is_asked_again(client, stand_in):
    def answer(request, version):
        if len(stand_in.requests) <= 2:
            raise Refusal("UNAVAILABLE", "warming up")
        return toy_answer(request, version)

    stand_in.answer = answer
    np.testing.assert_array_equal(client.encode(["one"]), expected_embeddings(["one"]))
    assert len(stand_in.requests) == 3


def test_server_that_stays_unavailable_is_asked_four_times(client, stand_in):
    def answer(request, version):
        raise Refusal("UNAVAILABLE", "warming up")

    stand_in.answer = answer
    message = message_of(UnavailableError, client.encode, ["one"])
    assert "warming up" in message and message.endswith("; 4 tries")
    assert len(stand_in.requests) == 4


def test_further_tries_end_with_the_deadline(stand_in, transport):
    target = target_at(transport, free_port())
    with connect(target, timeout=0.15) as client:
        start = time.monotonic()
        # The pauses of four tries are 0.35 s at least.
        message = message_of(UnavailableError, client.encode, ["one"])
        assert time.monotonic() - start < 0.35
    assert "4 tries" not in message


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "INTERNAL", "RESOURCE_EXHAUSTED", "PERMISSION_DENIED"])
def test_no_other_refusal_is_asked_again_and_its_words_are_passed_on(client, stand_in, code):
    def answer(request, version):
        raise Refusal(code, "it's 'sentences'\n\tthat must be 1-D: “é”")

    stand_in.answer = answer
    message = message_of(ServingError, client.encode, ["one"])
    assert message.startswith(f"{client._target}, model bert_flow: ")
    assert message.endswith(": it's 'sentences' that must be 1-D: “é”")
    assert len(stand_in.requests) == 1


def test_refusals_name_their_code(stand_in):
    with stand_in.grpc() as target, connect(target, timeout=AMPLE) as client:
        assert ": INVALID_ARGUMENT: Serving signature name" in message_of(
            ServingError, client.encode, ["one"], signature="other"
        )
    with stand_in.rest() as target, connect(target, timeout=AMPLE) as client:
        assert ": HTTP 400: Serving signature name" in message_of(
            ServingError, client.encode, ["one"], signature="other"
        )


def test_words_of_a_server_are_cut_where_they_are_many(client, stand_in):
    def answer(request, version):
        raise Refusal("INVALID_ARGUMENT", "word " * 1000)

    stand_in.answer = answer
    assert 500 < len(message_of(ServingError, client.encode, ["one"])) < 600


def test_deadline_names_its_seconds_and_is_kept(stand_in, transport):
    late = threading.Event()

    def answer(request, version):
        late.wait(AMPLE)
        return toy_answer(request, version)

    stand_in.answer = answer
    try:
        with served(stand_in, transport) as target, connect(target, timeout=0.25) as client:
            start = time.monotonic()
            message = message_of(NoAnswerInTimeError, client.encode, ["one"])
            passed = time.monotonic() - start
            late.set()
    finally:
        late.set()
    assert message == f"{target}: no answer within 0.25 s, expected one before the timeout"
    assert 0.2 < passed < 5
    assert len(stand_in.requests) == 1


def test_deadline_of_the_server_itself_is_one_too(client, stand_in):
    def answer(request, version):
        raise Refusal("DEADLINE_EXCEEDED", "session run")

    stand_in.answer = answer
    assert "no answer within" in message_of(NoAnswerInTimeError, client.encode, ["one"])


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


def test_client_finds_a_server_that_was_started_anew(stand_in, transport):
    port = free_port()
    with connect(target_at(transport, port), timeout=AMPLE) as client:
        for _ in range(2):
            with served(stand_in, transport, port):
                client.wait_until_ready(AMPLE)
                np.testing.assert_array_equal(client.encode(["one"]), expected_embeddings(["one"]))


def test_waiting_ends_when_the_version_is_in_service(stand_in, transport):
    port = free_port()
    stand_in.versions = {1: "AVAILABLE", 2: "LOADING"}
    ready = threading.Event()

    def wait():
        with connect(target_at(transport, port), version=2, timeout=AMPLE) as client:
            client.wait_until_ready(AMPLE)
        ready.set()

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.1)
    with served(stand_in, transport, port):
        assert not ready.wait(0.3)
        stand_in.versions[2] = "AVAILABLE"
        assert ready.wait(AMPLE)
        thread.join()


def test_waiting_in_vain_says_what_was_seen_last(stand_in, transport):
    target = target_at(transport, free_port())
    with connect(target, timeout=AMPLE) as client:
        message = message_of(NoAnswerInTimeError, client.wait_until_ready, 0.2)
    assert "not AVAILABLE after 0.2 s; last seen: " in message and "refused" in message
    stand_in.versions = {1: "LOADING"}
    with served(stand_in, transport) as target, connect(target, timeout=AMPLE) as client:
        message = message_of(NoAnswerInTimeError, client.wait_until_ready, 0.2)
    assert message.endswith("found version 1 LOADING")


# Models and versions that are not there.


def test_unknown_model_is_named(stand_in, transport):
    with served(stand_in, transport) as target, connect(target, "other", timeout=AMPLE) as client:
        message = message_of(NotFoundError, client.encode, ["one"])
        assert message.startswith(f"{target}: found no model other, expected the name of one that is served (")
        assert "Could not find any versions of model other" in message_of(NotFoundError, client.status)
        assert "model other" in message_of(NotFoundError, client.encode, ["one", "two"], batch_size=1)


def test_unknown_version_is_named_with_those_there_are(stand_in, transport):
    stand_in.versions = {1: "AVAILABLE", 3: "LOADING"}
    with served(stand_in, transport) as target, connect(target, version=7, timeout=AMPLE) as client:
        message = message_of(NotFoundError, client.encode, ["one"])
    assert message == (
        f"{target}, model bert_flow: version 7 not AVAILABLE, found version 1 AVAILABLE, version 3 LOADING"
    )


@pytest.mark.parametrize("batch_size", [1, 2])
def test_model_without_a_version_in_service_is_named(client, stand_in, batch_size):
    stand_in.versions = {1: ("END", "no space left")}
    message = message_of(NotFoundError, client.encode, ["one", "two"], batch_size=batch_size)
    assert message.endswith("model bert_flow: no version AVAILABLE, found version 1 END: no space left")


def test_thing_that_the_model_itself_does_not_find_is_no_missing_version(client, stand_in):
    def answer(request, version):
        raise Refusal("NOT_FOUND", "Resource table does not exist")

    stand_in.answer = answer
    message = message_of(ServingError, client.encode, ["one", "two"], batch_size=1)
    assert message.endswith("Resource table does not exist")
    assert len(stand_in.requests) == 1


# Answers that are not what was asked for.


def refused_answer(transport, outputs, call=lambda client: client.encode(["one", "two"])):
    stand_in = StandIn(lambda request, version: outputs)
    with served(stand_in, transport) as target, connect(target, timeout=AMPLE) as client:
        message = message_of(ServingError, call, client)
    assert message.startswith(f"{target}")
    return message


def test_answer_without_the_output_names_those_it_has(transport):
    ones = np.ones([2, 3], np.float32)
    message = refused_answer(transport, {"logits": ones, "probabilities": ones})
    assert message.endswith("signature serving_default: found outputs logits, probabilities, expected embedding")


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (2,), (2, 2, 2), ()])
def test_answer_of_another_shape_is_named(transport, shape):
    message = refused_answer(transport, {"embedding": np.ones(shape, np.float32)})
    assert message.endswith(f"found embedding of shape {list(shape)}, expected [2, D]")


def test_cosines_of_another_shape_are_named(transport):
    message = refused_answer(
        transport, {"cosine": np.ones([2, 2], np.float32)}, lambda client: client.similarity(["a", "b"], ["c", "d"])
    )
    assert message.endswith("signature similarity: found cosine of shape [2, 2], expected [2]")


def test_batches_of_two_widths_are_named(client, stand_in):
    stand_in.answer = lambda request, version: {"embedding": np.ones([1, 3 + len(stand_in.requests)], np.float32)}
    message = message_of(ServingError, client.encode, ["one", "two"], batch_size=1)
    assert "found embedding of widths 4 and 5 in one call, expected one" in message


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "an infinity"), (-np.inf, "an infinity")])
def test_value_that_is_not_finite_is_named_with_its_place(client, stand_in, value, name):
    def answer(request, version):
        embedding = np.ones([1, 4], np.float32)
        if request.inputs["sentences"] == ["third"]:
            embedding[0, 2] = value
        return {"embedding": embedding}

    stand_in.answer = answer
    message = message_of(ServingError, client.encode, ["first", "second", "third"], batch_size=1)
    assert message.endswith(f"found {name} in embedding number 2 (from 0), expected finite numbers")


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


def test_client_of_one_kind_at_the_port_of_the_other_is_one_line(stand_in):
    with stand_in.grpc() as target, connect(target.replace("grpc", "http"), timeout=AMPLE) as client:
        message_of(ServingError, client.encode, ["one"])
    with stand_in.rest() as target, connect(target.replace("http", "grpc"), timeout=AMPLE) as client:
        message_of(UnavailableError, client.encode, ["one"])


def test_https_at_a_port_without_tls_is_one_line(stand_in):
    with stand_in.rest() as target, connect(target.replace("http", "https"), timeout=AMPLE) as client:
        assert "found no TLS that can be trusted" in message_of(ServingError, client.encode, ["one"])


# What it asks of its caller.


@pytest.mark.parametrize(
    "target",
    [
        "localhost:8500",
        "grpc://localhost",
        "grpc://localhost:8500/v1",
        "grpc://:8500",
        "http://",
        "http://user:word@localhost:8501",
        "http://localhost:0",
        "http://localhost:80000",
        "http://localhost:port",
        "http://[::1",
        "http://localhost:8501?x=1",
        "ftp://localhost:21",
        "",
        None,
    ],
)
def test_target_that_is_no_address_is_named(target):
    message = message_of(UserError, connect, target)
    assert message.startswith(f"target: found {target!r}, expected grpc://host:port")


def test_rest_target_may_have_a_path_and_no_port(stand_in):
    client = connect("http://gateway/team a/")
    assert (client._transport._host, client._transport._port) == ("gateway", 80)
    assert client._transport._path == "/team%20a/v1/models/bert_flow"
    assert connect("https://gateway")._transport._port == 443


def test_name_of_a_model_is_quoted_in_the_path():
    stand_in = StandIn(model="flow 2:é/x")
    with stand_in.rest() as target, connect(target, "flow 2:é/x", timeout=AMPLE) as client:
        np.testing.assert_array_equal(client.encode(["one"]), expected_embeddings(["one"]))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"model": ""}, "model: found ''"),
        ({"model": "a\nb"}, "model: found 'a\\nb'"),
        ({"version": -1}, "version: found -1"),
        ({"version": "1"}, "version: found '1'"),
        ({"version": True}, "version: found True"),
        ({"version": 1 << 63}, "version: found 9223372036854775808"),
        ({"timeout": 0}, "timeout: found 0"),
        ({"timeout": float("nan")}, "timeout: found nan"),
        ({"timeout": float("inf")}, "timeout: found inf"),
        ({"timeout": None}, "timeout: found None"),
    ],
)
def test_argument_that_cannot_be_is_named(options, line):
    assert message_of(UserError, connect, "http://localhost:8501", **options).startswith(line)


@pytest.mark.parametrize(
    ("sentences", "line"),
    [
        ("one", "sentences: found one str, expected a list of them"),
        (["one", b"two"], "sentences[1]: found bytes, expected str"),
        (["one", None], "sentences[1]: found NoneType, expected str"),
        (["one", "tw\udcffo"], "sentences[1]: found U+DCFF at character 2, expected text that UTF-8 can hold"),
    ],
)
def test_sentences_that_are_no_text_are_named_before_any_request(sentences, line):
    stand_in = StandIn()
    with stand_in.rest() as target, connect(target, timeout=AMPLE) as client:
        assert message_of(UserError, client.encode, sentences) == line
        message = message_of(UserError, client.similarity, ["a"] * len(sentences), sentences)
        assert message == line.replace("sentences", "b", 1)
    assert stand_in.requests == []


def test_lists_of_two_lengths_and_batches_of_nothing_are_named(client):
    assert "found 2 and 1 sentences" in message_of(UserError, client.similarity, ["a", "b"], ["c"])
    for batch_size in (0, 2.5, True):
        message = message_of(UserError, client.encode, ["a"], batch_size=batch_size)
        assert message == f"batch_size: found {batch_size!r}, expected a positive whole number"


def test_closed_client_says_so(client):
    client.close()
    client.close()
    for call in (lambda: client.encode(["one"]), client.status, lambda: client.wait_until_ready(1)):
        assert "the client is closed" in message_of(ServingError, call)


_WITHOUT_TENSORFLOW = """
import sys
from bert_flow_tf.serving.client import connect
with connect(sys.argv[1], timeout=60) as client:
    client.wait_until_ready()
    print(client.encode(["one"]).shape, client.similarity(["one"], ["two"]).shape, client.status())
print([name for name in sys.modules if name.split(".")[0] in ("tensorflow", "grpc", "requests")])
"""


def test_rest_needs_neither_tensorflow_nor_grpc(stand_in):
    with stand_in.rest() as target:
        command = [sys.executable, "-c", _WITHOUT_TENSORFLOW, target]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(1, 8) (1,) [VersionState(version=1, state='AVAILABLE')]\n[]\n"


def test_grpc_without_its_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    monkeypatch.delitem(sys.modules, "tensorflow_serving.apis", raising=False)
    message = message_of(ServingError, connect, "grpc://localhost:8500")
    assert "pip install bert-flow-tf[serving]" in message


# The real server.

_MODEL_SERVER = shutil.which("tensorflow_model_server")


@pytest.mark.skipif(
    _MODEL_SERVER is None, reason="no tensorflow_model_server on PATH: the client was NOT tried against the real server"
)
def test_real_server_gives_the_models_embeddings_and_swaps_versions_under_load(sts_run, tmp_path):
    from bert_flow_tf.api import BertFlow

    model = BertFlow.load(sts_run)
    base = tmp_path / "bert_flow"
    model.export(base, version=1)
    second = model.export(tmp_path / "later", version=2, normalize=True).path
    sentences = [sentence for sentence in SENTENCES if "\0" not in sentence]
    ports = {"grpc": free_port(), "rest": free_port()}
    command = [
        _MODEL_SERVER,
        f"--port={ports['grpc']}",
        f"--rest_api_port={ports['rest']}",
        "--model_name=bert_flow",
        f"--model_base_path={base}",
        "--file_system_poll_wait_seconds=1",
    ]
    with open(tmp_path / "log", "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        for transport in TRANSPORTS:
            with connect(target_at(transport, ports[transport]), timeout=AMPLE) as client:
                client.wait_until_ready(300)
                assert client.status() == [(1, "AVAILABLE")]
                expected = model.encode(sentences)
                atol = 1e-5 * np.abs(expected).max()
                np.testing.assert_allclose(client.encode(sentences, batch_size=4), expected, rtol=0, atol=atol)
                assert client.encode([]).shape == (0, model.embedding_size)
                assert "not found" in message_of(ServingError, client.encode, ["one"], signature="other").lower()
            with connect(target_at(transport, ports[transport]), version=7, timeout=AMPLE) as client:
                assert "version 7 not AVAILABLE" in message_of(NotFoundError, client.encode, ["one"])
            with connect(target_at(transport, ports[transport]), "other", timeout=AMPLE) as client:
                assert "found no model other" in message_of(NotFoundError, client.encode, ["one"])

        def swap():
            second.rename(base / "2")
            with connect(target_at("grpc", ports["grpc"]), version=2, timeout=AMPLE) as client:
                client.wait_until_ready(300)

        expected = {1: model.encode(SENTENCES), 2: model.encode(SENTENCES, normalize_embeddings=True)}
        check_hot_swap([target_at(transport, port) for transport, port in ports.items()], swap, expected)
    finally:
        server.terminate()
        server.wait()
