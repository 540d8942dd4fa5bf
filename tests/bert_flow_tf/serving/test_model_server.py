"""The client against exports: by the stand-in, and by the real server where there is one."""

import concurrent.futures
import pathlib
import shutil
import subprocess
import threading
import time

import numpy as np
import pytest

from bert_flow_tf.serving.client_errors import NotFoundError, ServingError
from bert_flow_tf.serving.server_files import served_name
from tests.bert_flow_tf.serving.client_checks import (
    AMPLE,
    SENTENCES,
    TRANSPORTS,
    connect,
    expected_embeddings,
    free_port,
    message_of,
    served,
    target_at,
)
from tests.bert_flow_tf.serving.stand_in_server import StandIn

_ROOT = pathlib.Path(__file__).parents[3]
_MODEL_SERVER = shutil.which("tensorflow_model_server")


def check_hot_swap(targets, swap, expected_by_version, model="bert_flow"):
    """Four threads ask all the time while `swap` brings version 2: no call fails, none mixes versions, 2 answers last.

    Args:
      targets: addresses of a server of version 1; half of the threads ask at each of two.
      swap: function that returns when version 2 is in service.
      expected_by_version: dict of 1 and 2 -> embeddings of `SENTENCES`.
      model: its name at the server.
    """
    stop = threading.Event()

    def versions_seen(target):
        seen = []
        with connect(target, model, timeout=AMPLE) as client:
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


def check_model(client, model):
    """The client's answers are the model's own: embeddings in several batches, cosines, and the width for nothing."""
    embeddings = model.encode(SENTENCES)
    found = client.encode(SENTENCES, batch_size=3)
    np.testing.assert_allclose(found, embeddings, rtol=0, atol=1e-5 * np.abs(embeddings).max())
    cosines = np.diag(model.similarity(embeddings, embeddings[::-1]))
    np.testing.assert_allclose(client.similarity(SENTENCES, SENTENCES[::-1]), cosines, rtol=0, atol=1e-5)
    assert client.encode([]).shape == (0, model.embedding_size)


def test_signatures_of_an_export_are_those_that_the_client_asks_for(small_encoder_dir, tmp_path):
    import tensorflow as tf

    from bert_flow_tf.api import BertFlow

    model = BertFlow.from_hub(str(small_encoder_dir), max_seq_length=10)
    signatures = tf.saved_model.load(str(model.export(tmp_path, version=1).path)).signatures

    def answer(request, version):
        inputs = {name: tf.constant(sentences) for name, sentences in request.inputs.items()}
        return {name: value.numpy() for name, value in signatures[request.signature](**inputs).items()}

    stand_in = StandIn(answer)
    for transport in TRANSPORTS:
        with served(stand_in, transport) as target, connect(target, timeout=AMPLE) as client:
            check_model(client, model)
            # Without a flow there is nothing after the pooling.
            np.testing.assert_array_equal(client.encode(SENTENCES, signature="pooled"), client.encode(SENTENCES))


@pytest.mark.skipif(
    _MODEL_SERVER is None, reason="no tensorflow_model_server on PATH: the client was NOT tried against the real server"
)
def test_real_server_gives_the_models_embeddings_and_swaps_versions_under_load(sts_run, tmp_path):
    from bert_flow_tf.api import BertFlow

    model = BertFlow.load(sts_run)
    base = tmp_path / "stsb"
    model.export(base, version=1)
    second = model.export(tmp_path / "later", version=2, normalize=True).path
    ports = {"grpc": free_port(), "rest": free_port()}
    script = str(_ROOT / "run_scripts" / "serve.sh")
    command = ["bash", script, str(base), f"--grpc_port={ports['grpc']}", f"--rest_port={ports['rest']}"]
    with open(tmp_path / "log", "wb") as log:
        # The script becomes the server.
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        for transport in TRANSPORTS:
            with connect(target_at(transport, ports[transport]), served_name(base), timeout=AMPLE) as client:
                client.wait_until_ready(300)
                assert client.status() == [(1, "AVAILABLE")]
                check_model(client, model)
                pooled = client.encode(SENTENCES, signature="pooled")
                assert pooled.shape == (len(SENTENCES), model.embedding_size)
                assert np.abs(pooled - client.encode(SENTENCES)).max() > 0.01
                assert "not found" in message_of(ServingError, client.encode, ["one"], signature="other").lower()
            with connect(target_at(transport, ports[transport]), "stsb", version=7, timeout=AMPLE) as client:
                assert "version 7 not AVAILABLE" in message_of(NotFoundError, client.encode, ["one"])
            with connect(target_at(transport, ports[transport]), "other", timeout=AMPLE) as client:
                assert "found no model other" in message_of(NotFoundError, client.encode, ["one"])

        def swap():
            second.rename(base / "2")
            with connect(target_at("grpc", ports["grpc"]), "stsb", version=2, timeout=AMPLE) as client:
                client.wait_until_ready(300)

        expected = {1: model.encode(SENTENCES), 2: model.encode(SENTENCES, normalize_embeddings=True)}
        targets = [target_at(transport, port) for transport, port in ports.items()]
        check_hot_swap(targets, swap, expected, model="stsb")
    finally:
        server.terminate()
        server.wait()
