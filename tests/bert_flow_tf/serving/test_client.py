"""What the client gives, by gRPC and by REST, and what it asks of its caller."""

import concurrent.futures

import numpy as np
import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.serving.client_errors import NotFoundError, ServingError
from tests.bert_flow_tf.serving.client_checks import (
    AMPLE,
    SENTENCES,
    TRANSPORTS,
    connect,
    expected_embeddings,
    message_of,
    served,
)
from tests.bert_flow_tf.serving.stand_in_server import WIDTH, StandIn, toy_answer, toy_cosine


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


def test_threads_share_a_client_and_each_gets_its_own_answers(client):
    def work(thread):
        for i in range(6):
            sentences = [f"thread {thread}, call {i}, sentence {k}" for k in range(5)]
            np.testing.assert_array_equal(client.encode(sentences, batch_size=2), expected_embeddings(sentences))

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(work, thread) for thread in range(16)]:
            done.result()


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
