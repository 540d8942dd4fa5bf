"""Run the snippets of docs/serving.md."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import types

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tests.refusals import succeeds

_ROOT = pathlib.Path(__file__).parents[3]
GUIDE = (_ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
_SNIPPETS = dict(re.findall(r"<!-- snippet: ([^\n]+) -->\n```\w+\n(.+?)```\n", GUIDE, re.DOTALL))
_BOAT = "A boat crosses the lake."


@pytest.fixture(scope="module")
def workplace(sts_run, tmp_path_factory):
    """A folder with the snippets' input and the first one's output."""
    folder = tmp_path_factory.mktemp("serving")
    (folder / "runs").mkdir()
    (folder / "runs" / "stsb_flow").symlink_to(sts_run)
    (folder / "run_scripts").symlink_to(_ROOT / "run_scripts")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        said = succeeds(*shlex.split(_SNIPPETS["export"])[1:])
        assert re.fullmatch(
            r"SavedModel written: exported/stsb/1 \(reloaded: max difference .+\)\n", said
        )
        yield folder


def test_every_snippet_is_run_by_a_test():
    # test_onnx.py and test_sentence_transformers.py run the last four, and load what the last one
    # writes.
    here = {"export", "client", "serve", "curl", "grpc"}
    assert set(_SNIPPETS) == {*here, "onnx", "open_export", "onnxruntime", "folder"}
    assert len(re.findall(r"^```(?:bash|python)$", GUIDE, re.MULTILINE)) == len(_SNIPPETS) + 1


def test_server_gets_the_exported_folder(workplace, tmp_path):
    server = tmp_path / "tensorflow_model_server"
    server.write_text(f'#!{shutil.which("bash")}\nprintf "%s\\n" "$@" >"{tmp_path}/arguments"\n')
    server.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-euc", _SNIPPETS["serve"]], cwd=workplace, env=environment, check=True)
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert {f"--model_base_path={workplace / 'exported' / 'stsb'}", "--model_name=stsb"} < set(
        arguments
    )


def test_requests_fit_the_signature(workplace, sts_model, monkeypatch):
    signatures = tf.saved_model.load(str(workplace / "exported" / "stsb" / "1")).signatures
    *_, data, url = shlex.split(_SNIPPETS["curl"])
    assert url == "http://localhost:8501/v1/models/stsb:predict"
    assert (
        json.loads(data)["inputs"].keys()
        == signatures["serving_default"].structured_input_signature[1].keys()
    )

    def predict(request, timeout):
        assert request.model_spec.name == "stsb"
        inputs = {
            name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()
        }
        found = signatures[request.model_spec.signature_name](**inputs)
        outputs = {name: tf.make_tensor_proto(value) for name, value in found.items()}
        return predict_pb2.PredictResponse(outputs=outputs)

    stub = types.SimpleNamespace(Predict=predict)
    monkeypatch.setattr(prediction_service_pb2_grpc, "PredictionServiceStub", lambda channel: stub)
    monkeypatch.chdir(workplace)
    # Other tests have imported it for this process.
    assert "import tensorflow_text" in _SNIPPETS["client"]
    for snippet, name in (("grpc", "embedding"), ("client", "embeddings")):
        names = {}
        exec(compile(_SNIPPETS[snippet], "snippet", "exec"), names)
        np.testing.assert_allclose(names[name], sts_model.encode([_BOAT]), rtol=0, atol=1e-4)
