"""What the client gives, what it asks of its caller, and what a call ends with: the same by gRPC and by REST."""

import concurrent.futures
import re
import threading
import time

import numpy as np
import pytest

from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.serving.client_errors import NoAnswerInTimeError, NotFoundError, ServingError, UnavailableError
from tests.bert_flow_tf.serving.client_checks import (
    AMPLE,
    SENTENCES,
    check_hot_swap,
    connect,
    expected_embeddings,
    free_port,
    message_of,
    served,
    target_at,
)
from tests.bert_flow_tf.serving.stand_in_server import WIDTH, Refusal, toy_answer, toy_cosine

# What the bits of a float32 can be, apart from NaN and infinities.
_BITS = np.random.default_rng(0).integers(0, 1 << 32, 4000, np.uint64).astype(np.uint32).view(np.float32)
_FLOATS = np.append(_BITS[np.isfinite(_BITS)], np.float32([0, -0.0, 1e-45, 1.1754942e-38, 3.4028235e38, 0.1, 1 / 3]))


def refusing(code, message, times=10_000):
    """A stand-in's answer that is an error so many times."""
    left = iter(range(times))

    def answer(request, version):
        if next(left, None) is not None:
            raise Refusal(code, message)
        return toy_answer(request, version)

    return answer


def test_embeddings_are_the_servers_in_order_and_in_batches(client, stand_in):
    np.testing.assert_array_equal(client.encode(SENTENCES, batch_size=3), expected_embeddings(SENTENCES))
    batches = [SENTENCES[:3], SENTENCES[3:6], SENTENCES[6:]]
    assert [request.inputs["sentences"] for request in stand_in.requests] == batches
    np.testing.assert_array_equal(client.encode(["one"], signature="pooled"), expected_embeddings(["one"]) + 1)


def test_every_finite_float32_survives(client, stand_in):
    stand_in.answer = lambda request, version: {"embedding": _FLOATS[None]}
    np.testing.assert_array_equal(client.encode(["one"]).view(np.uint32), _FLOATS[None].view(np.uint32))


def test_cosines_are_of_the_pairs_in_their_order(client, stand_in):
    a, b = [f"a{i}" for i in range(5)], [f"b{i}" for i in range(5)]
    found = client.similarity(a, b, batch_size=2)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [toy_cosine(x, y) for x, y in zip(a, b, strict=True)])
    assert [len(request.inputs["sentence_b"]) for request in stand_in.requests] == [2, 2, 1]


def test_nothing_gives_arrays_of_no_rows_and_no_pairs_no_request(client, stand_in):
    cosines = client.similarity([], [])
    assert stand_in.requests == []
    embeddings = client.encode([])
    assert [(found.shape, found.dtype) for found in (cosines, embeddings)] == [
        ((0,), np.float32),
        ((0, WIDTH), np.float32),
    ]


def test_threads_share_a_client_and_each_gets_its_own_answers(client):
    def work(thread):
        for i in range(6):
            sentences = [f"thread {thread}, call {i}, sentence {k}" for k in range(5)]
            np.testing.assert_array_equal(client.encode(sentences, batch_size=2), expected_embeddings(sentences))

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))


def test_version_is_the_one_asked_for_and_the_newest_otherwise(stand_in, target):
    stand_in.versions = {1: "AVAILABLE", 2: "AVAILABLE", 3: "LOADING"}
    for version, answers in ((1, 1), (2, 2), (None, 2)):
        with connect(target, version=version) as client:
            np.testing.assert_array_equal(client.encode(["one"]), expected_embeddings(["one"], answers))


@pytest.mark.parametrize("first", ["AVAILABLE", "END"])
def test_rows_of_one_call_are_of_one_version_although_a_newer_one_comes_between(client, stand_in, first):
    def answer(request, version):
        stand_in.versions = {1: first, 2: "AVAILABLE"}
        return toy_answer(request, version)

    stand_in.answer = answer
    # All of them again, from version 2, where version 1 is out of service.
    expected = expected_embeddings(SENTENCES, 1 if first == "AVAILABLE" else 2)
    np.testing.assert_array_equal(client.encode(SENTENCES, batch_size=2), expected)
    np.testing.assert_array_equal(client.encode(SENTENCES, batch_size=2), expected_embeddings(SENTENCES, 2))


def test_hot_swap_under_load(stand_in, target):
    def swap():
        time.sleep(0.3)
        stand_in.versions = {1: "AVAILABLE", 2: "LOADING"}
        time.sleep(0.1)
        stand_in.versions = {1: "AVAILABLE", 2: "AVAILABLE"}
        stand_in.versions = {1: "END", 2: "AVAILABLE"}

    check_hot_swap([target], swap, {version: expected_embeddings(SENTENCES, version) for version in (1, 2)})
    assert {request.version for request in stand_in.requests} == {1, 2}


def test_server_whose_versions_never_stay_is_given_up(client, stand_in):
    def answer(request, version):
        stand_in.versions = {version + 1: "AVAILABLE"}
        return toy_answer(request, version)

    stand_in.answer = answer
    message = message_of(NotFoundError, client.encode, ["one", "two"], batch_size=1)
    assert message.endswith("version 4 not AVAILABLE, found version 5 AVAILABLE")


def test_status_lists_versions_with_states_and_reasons(client, stand_in):
    stand_in.versions = {3: "LOADING", 1: "AVAILABLE", 2: ("END", "Op type not\nregistered")}
    assert client.status() == [(1, "AVAILABLE"), (2, "END: Op type not registered"), (3, "LOADING")]


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
        "http://localhost:8501?x=1",
        "ftp://localhost:21",
        None,
    ],
)
def test_target_that_is_no_address_is_named(target):
    message = message_of(ArgumentError, connect, target)
    assert message.startswith(f"target: found {target!r}, expected grpc://host:port")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("model", ["", "a\nb", None]),
        ("version", [-1, True, 1 << 63]),
        ("timeout", [0, float("nan"), float("inf"), None, True]),
    ],
)
def test_argument_that_cannot_be_is_named(name, values):
    for value in values:
        message = message_of(ArgumentError, connect, "http://localhost:8501", **{name: value})
        assert message.startswith(f"{name}: found {value!r}, expected")


@pytest.mark.parametrize(
    ("sentences", "line"),
    [
        ("one", "sentences: found str 'one', expected strings in a list or another ordered iterable"),
        (["one", b"two"], "sentences[1]: found bytes b'two', expected a string"),
        (["one", "tw\udcffo"], "sentences[1]: found U+DCFF at character 2, expected text that UTF-8 can hold"),
    ],
)
def test_sentences_that_are_no_text_are_named_before_any_request(sentences, line):
    with connect(target_at("rest", free_port())) as client:
        assert message_of(UserError, client.encode, sentences) == line
        message = message_of(UserError, client.similarity, ["a"] * len(sentences), sentences)
        assert message == line.replace("sentences", "b", 1)


def test_lists_of_two_lengths_batches_of_nothing_and_closed_clients_are_named():
    with connect(target_at("rest", free_port())) as client:
        assert "found 1 sentences, expected 2" in message_of(ArgumentError, client.similarity, ["a", "b"], ["c"])
        for batch_size in (0, 2.5, True):
            message = message_of(ArgumentError, client.encode, ["a"], batch_size=batch_size)
            assert message == f"batch_size: found {batch_size!r}, expected a positive whole number"
        client.close()
        assert "the client is closed" in message_of(ServingError, client.encode, ["one"])


def test_nobody_at_the_address_is_named(transport):
    for target, reason in (
        (target_at(transport, free_port()), "refused"),
        (target_at(transport, 8500, host="no-such-host.invalid"), ""),
    ):
        with connect(target) as client:
            message = message_of(UnavailableError, client.encode, ["one"])
        assert message.startswith(f"{target}: unavailable (") and reason in message


def test_unavailable_server_is_asked_again_for_a_sentence_of_a_megabyte_too(client, stand_in):
    stand_in.answer = refusing("UNAVAILABLE", "warming up", times=3)
    sentences = ["word 🙂 " * 100_001, "short"]
    assert len(sentences[0].encode()) > 1_000_000
    np.testing.assert_array_equal(client.encode(sentences), expected_embeddings(sentences))
    assert len(stand_in.requests) == 4


def test_server_that_stays_unavailable_is_asked_four_times_within_the_deadline(stand_in, target):
    stand_in.answer = refusing("UNAVAILABLE", "warming up")
    with connect(target) as client:
        assert "warming up" in message_of(UnavailableError, client.encode, ["one"])
    assert len(stand_in.requests) == 4
    with connect(target, timeout=0.25) as client, pytest.raises(ServingError):
        client.encode(["one"])
    # The pauses before four tries are 0.35 s at least.
    assert 5 <= len(stand_in.requests) < 8


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "INTERNAL", "PERMISSION_DENIED"])
def test_no_other_refusal_is_asked_again_and_its_words_are_passed_on(client, target, stand_in, code):
    stand_in.answer = refusing(code, "it's 'sentences'\n\tthat must be 1-D: “é” " + "word " * 1000)
    message = message_of(ServingError, client.encode, ["one"])
    assert message.startswith(f"{target}, model bert_flow")
    assert re.search(rf": ({code}|HTTP \d+): it's 'sentences' that must be 1-D: “é” (word )+\w*…$", message)
    assert len(message) < 700
    assert len(stand_in.requests) == 1


def test_bad_request_names_signature_and_inputs_where_the_server_does_not(client, target, stand_in):
    # TensorFlow's words where a model takes another dtype: no input of a request is named.
    stand_in.answer = refusing("INVALID_ARGUMENT", "Expects arg[0] to be int32 but string is provided")
    where = f"{target}, model bert_flow, signature"
    message = message_of(ServingError, client.similarity, ["one"], ["two"])
    assert message.startswith(f"{where} similarity, input sentence_a (string [1]), sentence_b (string [1]): ")


def test_deadline_names_its_seconds_and_is_kept(stand_in, target):
    late = threading.Event()
    stand_in.answer = lambda request, version: late.wait(AMPLE) and toy_answer(request, version)
    try:
        with connect(target, timeout=0.25) as client:
            start = time.monotonic()
            message = message_of(NoAnswerInTimeError, client.encode, ["one"])
            passed = time.monotonic() - start
    finally:
        late.set()
    assert message == f"{target}: no answer within 0.25 s, expected one before the timeout"
    assert 0.2 < passed < 5
    assert len(stand_in.requests) == 1


def test_deadline_of_the_server_itself_is_one_too(client, stand_in):
    stand_in.answer = refusing("DEADLINE_EXCEEDED", "session run")
    assert "no answer within" in message_of(NoAnswerInTimeError, client.encode, ["one"])


def test_client_waits_for_a_server_that_starts_and_for_its_version_and_finds_it_again(stand_in, transport):
    port = free_port()
    stand_in.versions = {1: "AVAILABLE", 2: "LOADING"}
    with connect(target_at(transport, port), version=2) as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        ready = pool.submit(client.wait_until_ready, AMPLE)
        time.sleep(0.1)
        with served(stand_in, transport, port):
            with pytest.raises(concurrent.futures.TimeoutError):
                ready.result(0.3)
            stand_in.versions[2] = "AVAILABLE"
            ready.result(AMPLE)
            client.encode(["one"])
        with served(stand_in, transport, port):
            client.wait_until_ready(AMPLE)
            np.testing.assert_array_equal(client.encode(["one"]), expected_embeddings(["one"], 2))


def test_waiting_in_vain_says_what_was_seen_last(stand_in, transport):
    with connect(target_at(transport, free_port())) as client:
        message = message_of(NoAnswerInTimeError, client.wait_until_ready, 1.5)
    assert "not AVAILABLE after 1.5 s; last seen: " in message and "refused" in message
    stand_in.versions = {1: "LOADING"}
    with served(stand_in, transport) as target, connect(target) as client:
        message = message_of(NoAnswerInTimeError, client.wait_until_ready, 0.2)
    assert message.endswith("found version 1 LOADING")


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize(
    ("versions", "asked", "line"),
    [
        ({1: "AVAILABLE"}, {"model": "other"}, ": found no model other, expected the name of one that is served ("),
        (
            {1: "AVAILABLE", 3: "LOADING"},
            {"version": 7},
            ", model bert_flow: version 7 not AVAILABLE, found version 1 AVAILABLE, version 3 LOADING",
        ),
        ({1: ("END", "no room")}, {}, ", model bert_flow: no version AVAILABLE, found version 1 END: no room"),
    ],
)
def test_what_is_not_served_is_named_with_what_is(stand_in, target, batch_size, versions, asked, line):
    stand_in.versions = versions
    with connect(target, **asked) as client:
        message = message_of(NotFoundError, client.encode, ["one", "two"], batch_size=batch_size)
        assert message.startswith(f"{target}{line}")
        if "model" in asked:
            assert "Could not find any versions of model other" in message_of(NotFoundError, client.status)


def test_thing_that_the_model_itself_does_not_find_is_no_missing_version(client, stand_in):
    stand_in.answer = refusing("NOT_FOUND", "Resource table does not exist")
    message = message_of(ServingError, client.encode, ["one", "two"], batch_size=1)
    assert message.endswith("Resource table does not exist")
    assert len(stand_in.requests) == 1


@pytest.mark.parametrize(
    ("outputs", "line"),
    [
        ({"logits": [1], "probabilities": [1]}, "outputs logits, probabilities, expected embedding"),
        ({"embedding": np.ones((3, 4))}, "embedding of shape [3, 4], expected [2, D]"),
        ({"embedding": np.ones(2)}, "embedding of shape [2], expected [2, D]"),
        ({"embedding": np.ones(())}, "embedding of shape [], expected [2, D]"),
        ({"embedding": [[1, 1], [1, np.nan]]}, "NaN in embedding number 1 (from 0), expected finite numbers"),
        ({"embedding": [[1, -np.inf], [1, 1]]}, "an infinity in embedding number 0 (from 0), expected finite numbers"),
    ],
)
def test_answer_that_is_not_what_the_signature_promises_is_named(client, stand_in, outputs, line):
    arrays = {name: np.array(values, np.float32) for name, values in outputs.items()}
    stand_in.answer = lambda request, version: arrays
    message = message_of(ServingError, client.encode, ["one", "two"])
    assert message.endswith(f"signature serving_default: found {line}")


def test_cosines_of_another_shape_are_named(client, stand_in):
    stand_in.answer = lambda request, version: {"cosine": np.ones([2, 2], np.float32)}
    message = message_of(ServingError, client.similarity, ["a", "b"], ["c", "d"])
    assert message.endswith("signature similarity: found cosine of shape [2, 2], expected [2]")


@pytest.mark.parametrize(
    ("last", "line"),
    [
        (np.ones([1, 4]), "found embedding of widths 3 and 4 in one call, expected one width"),
        (np.full([1, 3], np.inf), "found an infinity in embedding number 2 (from 0), expected finite numbers"),
    ],
)
def test_later_batch_that_does_not_fit_is_named_with_its_place(client, stand_in, last, line):
    batches = iter([np.ones([1, 3]), np.ones([1, 3]), last])
    stand_in.answer = lambda request, version: {"embedding": next(batches).astype(np.float32)}
    message = message_of(ServingError, client.encode, ["first", "second", "third"], batch_size=1)
    assert message.endswith(line)


def test_client_of_one_kind_at_the_port_of_the_other_is_one_line(stand_in):
    with stand_in.grpc() as target, connect(target.replace("grpc", "http")) as client:
        message_of(ServingError, client.encode, ["one"])
    with stand_in.rest() as target, connect(target.replace("http", "grpc")) as client:
        message_of(UnavailableError, client.encode, ["one"])
