"""Run the snippets of docs/serving.md; a small gRPC server answers with the export, in place of TensorFlow Serving."""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import grpc
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
    """Folder with what the snippets read, and what the first of them wrote."""
    folder = tmp_path_factory.mktemp("serving")
    (folder / "runs").mkdir()
    (folder / "runs" / "stsb_flow").symlink_to(sts_run)
    (folder / "run_scripts").symlink_to(_ROOT / "run_scripts")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        said = succeeds(*shlex.split(_SNIPPETS["export"])[1:])
        assert re.fullmatch(r"SavedModel written: exported/stsb/1 \(reloaded: max difference .+\)\n", said)
        yield folder


def test_every_snippet_is_run_by_a_test():
    # test_onnx.py and test_sentence_transformers.py run the last three, and load what the last one writes.
    here = {"export", "client", "serve", "curl", "grpc"}
    assert set(_SNIPPETS) == {*here, "onnx", "onnxruntime", "folder"}
    assert len(re.findall(r"^```(?:bash|python)$", GUIDE, re.MULTILINE)) == len(_SNIPPETS) + 1


def test_client_snippet_imports_all_that_it_needs(workplace):
    subprocess.run([sys.executable, "-c", _SNIPPETS["client"]], cwd=workplace, check=True)


def test_server_gets_the_exported_folder(workplace, tmp_path):
    server = tmp_path / "tensorflow_model_server"
    server.write_text(f'#!{shutil.which("bash")}\nprintf "%s\\n" "$@" >"{tmp_path}/arguments"\n')
    server.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-euc", _SNIPPETS["serve"]], cwd=workplace, env=environment, check=True)
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert {f"--model_base_path={workplace / 'exported' / 'stsb'}", "--model_name=stsb"} < set(arguments)


def test_curl_asks_for_inputs_that_the_signature_has(workplace):
    *_, data, url = shlex.split(_SNIPPETS["curl"])
    signature = tf.saved_model.load(str(workplace / "exported" / "stsb" / "1")).signatures["serving_default"]
    assert url == "http://localhost:8501/v1/models/stsb:predict"
    assert json.loads(data)["inputs"].keys() == signature.structured_input_signature[1].keys()


def test_grpc_snippet_gets_the_embedding(workplace, sts_run):
    from bert_flow_tf.api import BertFlow

    signatures = tf.saved_model.load(str(workplace / "exported" / "stsb" / "1")).signatures

    class Servicer(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            assert request.model_spec.name == "stsb"
            inputs = {name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()}
            found = signatures[request.model_spec.signature_name](**inputs)
            return predict_pb2.PredictResponse(
                outputs={name: tf.make_tensor_proto(value) for name, value in found.items()}
            )

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    names = {}
    try:
        exec(compile(_SNIPPETS["grpc"].replace("localhost:8500", f"127.0.0.1:{port}"), "snippet", "exec"), names)
    finally:
        server.stop(None)
    np.testing.assert_allclose(names["embedding"], BertFlow.load(sts_run).encode([_BOAT]), rtol=0, atol=1e-4)
