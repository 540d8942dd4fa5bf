"""The client against exports: by the stand-in, and by the real server where there is one."""

import pathlib
import shutil
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.serving.client_errors import NotFoundError, ServingError
from bert_flow_tf.serving.server_files import served_name
from tests.bert_flow_tf.serving.client_checks import (
    SENTENCES,
    TRANSPORTS,
    check_hot_swap,
    connect,
    free_port,
    message_of,
    served,
    target_at,
)
from tests.bert_flow_tf.serving.stand_in_server import StandIn

_SCRIPT = pathlib.Path(__file__).parents[3] / "run_scripts" / "serve.sh"
_MODEL_SERVER = shutil.which("tensorflow_model_server")


def check_model(client, model):
    """The client's answers are the model's own: embeddings in several batches, cosines, and the width for nothing."""
    embeddings = model.encode(SENTENCES)
    found = client.encode(SENTENCES, batch_size=3)
    np.testing.assert_allclose(found, embeddings, rtol=0, atol=1e-5 * np.abs(embeddings).max())
    cosines = np.diag(model.similarity(embeddings, embeddings[::-1]))
    np.testing.assert_allclose(client.similarity(SENTENCES, SENTENCES[::-1]), cosines, rtol=0, atol=1e-5)
    assert client.encode([]).shape == (0, model.embedding_size)
    pooled = client.encode(SENTENCES, signature="pooled")
    assert pooled.shape == embeddings.shape
    assert np.abs(pooled - found).max() > 0.01


def test_signatures_of_an_export_are_those_that_the_client_asks_for(sts_model, sts_version):
    signatures = tf.saved_model.load(str(sts_version)).signatures

    def answer(request, version):
        inputs = {name: tf.constant(sentences) for name, sentences in request.inputs.items()}
        return {name: value.numpy() for name, value in signatures[request.signature](**inputs).items()}

    stand_in = StandIn(answer)
    for transport in TRANSPORTS:
        with served(stand_in, transport) as target, connect(target) as client:
            check_model(client, sts_model)


@pytest.mark.skipif(
    _MODEL_SERVER is None, reason="no tensorflow_model_server on PATH: the client was NOT tried against the real server"
)
def test_real_server_gives_the_models_embeddings_and_swaps_versions_under_load(sts_model, tmp_path):
    base = tmp_path / "stsb"
    sts_model.export(base, version=1)
    second = sts_model.export(tmp_path / "later", version=2, normalize=True).path
    ports = {transport: free_port() for transport in TRANSPORTS}
    targets = [target_at(transport, port) for transport, port in ports.items()]
    command = ["bash", str(_SCRIPT), str(base), f"--grpc_port={ports['grpc']}", f"--rest_port={ports['rest']}"]
    with open(tmp_path / "log", "wb") as log:
        # The script becomes the server.
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        for target in targets:
            with connect(target, served_name(base)) as client:
                client.wait_until_ready(300)
                assert client.status() == [(1, "AVAILABLE")]
                check_model(client, sts_model)
                assert "not found" in message_of(ServingError, client.encode, ["one"], signature="other").lower()
            with connect(target, "stsb", version=7) as client:
                assert "version 7 not AVAILABLE" in message_of(NotFoundError, client.encode, ["one"])
            with connect(target, "other") as client:
                assert "found no model other" in message_of(NotFoundError, client.encode, ["one"])

        def swap():
            second.rename(base / "2")
            with connect(targets[0], "stsb", version=2) as client:
                client.wait_until_ready(300)

        expected = {1: sts_model.encode(SENTENCES), 2: sts_model.encode(SENTENCES, normalize_embeddings=True)}
        check_hot_swap(targets, swap, expected, model="stsb")
    finally:
        server.terminate()
        server.wait()
