"""What a call ends with, by gRPC and by REST: one line each."""

import re
import threading
import time

import numpy as np
import pytest

from bert_flow_tf.serving.client_errors import NoAnswerInTimeError, NotFoundError, ServingError, UnavailableError
from tests.bert_flow_tf.serving.client_checks import (
    AMPLE,
    connect,
    expected_embeddings,
    free_port,
    message_of,
    refused_answer,
    served,
    target_at,
)
from tests.bert_flow_tf.serving.stand_in_server import Refusal, toy_answer


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
    with connect(target, timeout=0.5) as client:
        message = message_of(UnavailableError, client.encode, ["one"])
    # The pauses of four tries would be 0.35 s at least.
    assert "4 tries" not in message


@pytest.mark.parametrize("code", ["INVALID_ARGUMENT", "INTERNAL", "RESOURCE_EXHAUSTED", "PERMISSION_DENIED"])
def test_no_other_refusal_is_asked_again_and_its_words_are_passed_on(client, stand_in, code):
    def answer(request, version):
        raise Refusal(code, "it's 'sentences'\n\tthat must be 1-D: “é”")

    stand_in.answer = answer
    message = message_of(ServingError, client.encode, ["one"])
    assert message.startswith(f"{client._target}, model bert_flow")
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


def test_bad_request_names_signature_and_inputs_where_the_server_does_not(client, stand_in):
    # TensorFlow's words where a model takes another dtype: no input of a request is named.
    def answer(request, version):
        raise Refusal("INVALID_ARGUMENT", "Expects arg[0] to be int32 but string is provided")

    stand_in.answer = answer
    where = f"{client._target}, model bert_flow, signature"
    message = message_of(ServingError, client.encode, ["one", "two"])
    assert message.startswith(f"{where} serving_default, input sentences (string [2]): ")
    assert re.search(r": (INVALID_ARGUMENT|HTTP 400): Expects arg\[0\] to be int32 but string is provided$", message)
    message = message_of(ServingError, client.similarity, ["one"], ["two"])
    assert message.startswith(f"{where} similarity, input sentence_a (string [1]), sentence_b (string [1]): ")


def test_words_of_a_server_are_cut_where_they_are_many(client, stand_in):
    def answer(request, version):
        raise Refusal("INVALID_ARGUMENT", "word " * 1000)

    stand_in.answer = answer
    message = message_of(ServingError, client.encode, ["one"])
    assert message[message.index("word") :] == "word " * 100 + "…"


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


def test_client_of_one_kind_at_the_port_of_the_other_is_one_line(stand_in):
    with stand_in.grpc() as target, connect(target.replace("grpc", "http"), timeout=AMPLE) as client:
        message_of(ServingError, client.encode, ["one"])
    with stand_in.rest() as target, connect(target.replace("http", "grpc"), timeout=AMPLE) as client:
        message_of(UnavailableError, client.encode, ["one"])
