"""check-served compares a server of an export with the export."""

import contextlib
import functools
import http.server
import json

import numpy as np
import pytest
import tensorflow as tf

from tests.file_server import running
from tests.refusals import bert_flow, refused, succeeds


class _Serving(http.server.BaseHTTPRequestHandler):
    """Run an exported SavedModel behind the interfaces of three servers."""

    model: tf.Module

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind = self.path.rpartition("/")[2]
        texts = {"embed": request.get("inputs"), "embeddings": request.get("input")}.get(kind)
        rows = self.model(tf.constant(texts or request["inputs"]["sentences"])).numpy().tolist()
        numbered = [{"index": i, "embedding": row} for i, row in enumerate(rows)][::-1]
        answer = {"embed": rows, "embeddings": {"data": numbered}}.get(kind, {"outputs": rows})
        self.send_response(200 if self.path != "/v1/models/other:predict" else 404)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def server(sts_version):
    """A function that serves the export, its embeddings changed by a function."""
    model = tf.saved_model.load(str(sts_version))

    @contextlib.contextmanager
    def serve(change=lambda z: z):
        handler = type(
            "Handler", (_Serving,), {"model": staticmethod(lambda texts: change(model(texts)))}
        )
        with running(handler) as url:
            yield url

    return serve


@pytest.mark.parametrize(
    "path", ["v1/models/stsb", "v1/models/stsb:predict", "v1/embeddings", "embed"]
)
def test_a_right_server_passes_and_a_wrong_one_fails(server, sts_version, path):
    with server() as url:
        assert "5 sentences" in succeeds("check-served", f"{url}/{path}", "--export", sts_version)
    matrix = tf.constant(np.random.default_rng(0).normal(size=[32, 32]), tf.float32)
    for wrong in (functools.partial(tf.matmul, b=matrix), lambda z: 1.01 * z, lambda z: z * np.nan):
        with server(wrong) as url:
            outcome = bert_flow("check-served", f"{url}/{path}", "--export", sts_version)
            assert (outcome.exit_code, "the server gives other embeddings" in outcome.output) == (
                1,
                True,
            )


def test_mistakes_are_named(server, sts_version, tmp_path):
    with server() as url:
        assert "404 Not Found" in refused(
            "check-served", f"{url}/v1/models/other", "--export", sts_version
        )
        line = refused("check-served", url, "--export", tmp_path)
        assert line.startswith(f"{tmp_path}/export.json: no such file")
        description = json.loads((sts_version / "assets.extra" / "export.json").read_text())
        (tmp_path / "export.json").write_text(json.dumps(description | {"probes": {"w1": [1.0]}}))
        line = refused("check-served", url, "--export", tmp_path)
        assert "probes['w1']: found 1 numbers, expected 32" in line
    assert "cannot be read as a server of embeddings" in refused(
        "check-served", f"{url}/embed", "--export", sts_version
    )
    with server(lambda z: z[:, :3]) as url:
        assert "found embeddings of shape [5, 3]" in refused(
            "check-served", f"{url}/embed", "--export", sts_version
        )
