"""Every snippet of docs/serving.md is run: the export for real, questions against a stand-in for the model server."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import numpy as np
import pytest

from tests.bert_flow_tf.serving.stand_in_server import StandIn, toy_cosine, toy_embedding
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
    (folder / "sentences.txt").write_text("w1 w2\nw3\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        (line,) = commands(_SNIPPETS["export"])
        assert re.fullmatch(r"SavedModel written: exported/stsb/1 \(reloaded: max difference .+\)\n", line)
        yield folder


@pytest.fixture
def snippet():
    """Function (name) -> the snippet with the stand-in's addresses in place of the server's."""
    stand_in = StandIn(model="stsb")
    with stand_in.rest() as rest, stand_in.grpc() as grpc:
        ports = {"localhost:8501": rest, "localhost:8500": grpc}

        def addressed(name):
            text = _SNIPPETS[name]
            for address, target in ports.items():
                text = text.replace(address, target.partition("://")[2])
            assert "localhost" not in text
            return text

        yield addressed


def commands(text):
    """What the lines of a snippet print, all commands of ours."""
    lines = [shlex.split(line) for line in text.splitlines()]
    assert {program for program, *_ in lines} == {"bert-flow"}
    return [succeeds(*arguments) for _, *arguments in lines]


def run_python(text):
    """The names that a Python snippet leaves."""
    names = {}
    exec(compile(text, "snippet", "exec"), names)
    return names


def test_every_snippet_is_run_by_a_test():
    # The two of ONNX are run by test_onnx.py.
    assert set(_SNIPPETS) == {"export", "serve", "query", "curl", "client", "grpc", "onnx", "onnxruntime"}
    assert len(re.findall(r"^```(?:bash|python)$", GUIDE, re.MULTILINE)) == len(_SNIPPETS)


def test_export_holds_the_files_of_the_guides_table(workplace):
    base = workplace / "exported" / "stsb"
    table = GUIDE[GUIDE.index("| file |") : GUIDE.index("## Start a server")]
    named = re.findall(r"`([^`]+)`", "".join(line.split("|")[1] for line in table.splitlines() if line.count("|") > 2))
    assert len(named) == 9
    assert all((base / name).exists() for name in named)
    assert {path.name for path in base.iterdir()} == {"1", *(name for name in named if "/" not in name)}


def test_server_gets_the_ports_that_are_asked(workplace, tmp_path):
    server = tmp_path / "tensorflow_model_server"
    server.write_text(f'#!{shutil.which("bash")}\nprintf "%s\\n" "$@" >"{tmp_path}/arguments"\n')
    server.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["bash", "-euc", _SNIPPETS["serve"]], cwd=workplace, env=environment, check=True)
    assert {"--port=8500", "--rest_api_port=8501"} < set((tmp_path / "arguments").read_text().splitlines())


def test_command_asks_by_folder_and_by_name(workplace, snippet):
    embedding, cosine, written, status = commands(snippet("query"))
    np.testing.assert_array_equal(np.float32(json.loads(embedding)["embedding"]), toy_embedding(_BOAT))
    assert np.float32(json.loads(cosine)["cosine"]) == toy_cosine(_BOAT, "A ship sails.")
    assert written == "results written: u.npy\n"
    np.testing.assert_array_equal(np.load(workplace / "u.npy"), [toy_embedding(s) + 1 for s in ("w1 w2", "w3")])
    assert status == "1\tAVAILABLE\n"


def test_curl_asks(require, snippet):
    require("curl")
    done = subprocess.run(["bash", "-euc", snippet("curl")], capture_output=True, text=True, check=True)
    embeddings, cosines, status = json.loads("[{}]".format(done.stdout.replace("}{", "},{")))
    np.testing.assert_array_equal(np.float32(embeddings["outputs"]), [toy_embedding(_BOAT)])
    np.testing.assert_array_equal(np.float32(cosines["outputs"]), [toy_cosine("A boat.", "A ship.")])
    assert status["model_version_status"][0]["state"] == "AVAILABLE"


def test_clients_ask(snippet):
    names = run_python(snippet("client"))
    np.testing.assert_array_equal(names["embeddings"], [toy_embedding(_BOAT), toy_embedding("Rain.")])
    np.testing.assert_array_equal(names["cosines"], [toy_cosine("A boat.", "A ship.")])
    np.testing.assert_array_equal(run_python(snippet("grpc"))["embedding"], [toy_embedding(_BOAT)])
