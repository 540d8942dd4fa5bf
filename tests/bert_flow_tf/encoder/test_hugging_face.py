"""Models by their names, from a server on this machine that answers as the Hugging Face Hub does."""

import base64
import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest

from bert_flow_tf.encoder.handles import is_model_name
from tests.refusals import refusal

COMMIT, TOKEN = "0123456789abcdef0123456789abcdef01234567", "hf_" + "x" * 34


class Hub(http.server.BaseHTTPRequestHandler):
    """The hub's two questions and its files, for `acme/tiny`, its tag `v1`, and `acme/secret`, which needs a token.

    What is uploaded with that token is a model, too.
    """

    def log_message(self, *arguments):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path, _, _ = self.path.partition("?")
        self.server.asked.append((self.command, path))
        parts = path.removeprefix("/api/models").strip("/").split("/")
        name, rest = "/".join(parts[:2]), parts[2:]
        if name not in self.server.models:
            return self._answer(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        if name == "acme/secret" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer(401, {"error": "Access is restricted"}, {"X-Error-Code": "GatedRepo"})
        if rest and rest[1] not in ("main", "v1", "mine", COMMIT):
            return self._answer(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
        folder = self.server.models[name]
        if path.startswith("/api/") and rest[:1] == ["tree"]:
            files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
            return self._answer(
                200,
                [
                    {
                        "type": "file",
                        "oid": _oid(file),
                        "size": file.stat().st_size,
                        "path": file.relative_to(folder).as_posix(),
                    }
                    for file in files
                ],
            )
        if path.startswith("/api/"):
            return self._answer(200, {"id": name, "sha": COMMIT, "siblings": []})
        file = folder / "/".join(rest[2:])
        return self._answer(200, file.read_bytes(), {"ETag": f'"{_oid(file)}"', "X-Repo-Commit": COMMIT})

    def do_POST(self):
        path, _, _ = self.path.partition("?")
        content = self.rfile.read(int(self.headers["Content-Length"]))
        lines = [json.loads(line) for line in content.splitlines()]
        self.server.asked.append((self.command, path))
        if path == "/api/validate-yaml":
            return self._answer(200, {"errors": [], "warnings": []})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer(401, {"error": "Invalid username or password."})
        address = f"http://127.0.0.1:{self.server.server_port}"
        if path == "/api/repos/create":
            name = f"{lines[0]['organization']}/{lines[0]['name']}"
            self.server.created.setdefault(name, lines[0])
            self.server.models.setdefault(name, self.server.uploads / name)
            return self._answer(200, {"url": f"{address}/{name}"})
        name, (what, branch) = "/".join(path.split("/")[3:5]), path.split("/")[5:]
        if what == "preupload":
            files = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False} for one in lines[0]["files"]]
            return self._answer(200, {"files": files})
        if what == "commit":
            for line in lines[1:]:
                file = self.server.models[name] / line["value"]["path"]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(base64.b64decode(line["value"]["content"]))
        answer = {"success": True, "commitUrl": f"{address}/{name}/commit/{COMMIT}", "commitOid": COMMIT}
        return self._answer(200, answer | {"hookOutput": "", "branch": branch, **lines[0].get("value", {})})

    def _answer(self, status, body, headers=()):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **dict(headers)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _oid(path):
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextlib.contextmanager
def hub(folder):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        server.models, server.asked = {"acme/tiny": folder, "acme/secret": folder}, []
        server.created, server.uploads = {}, folder.parent / "uploads"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def served(golden_dir, tmp_path):
    """A hub and the environment of a process that asks it."""
    folder = tmp_path / "model"
    shutil.copytree(golden_dir / "transformers" / "sentence_transformer", folder)
    # Of other libraries: nothing here is asked for.
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"onnx")
    with hub(folder) as server:
        address = f"http://127.0.0.1:{server.server_port}"
        places = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "hf"), "BERT_FLOW_CACHE": str(tmp_path / "cache")}
        yield server, {**os.environ, **places, "HF_HUB_DISABLE_TELEMETRY": "1"}


def encode_model(environment, model, out):
    return encode(environment, "--model", model, "--out", out)


def encode(environment, *arguments):
    command = [sys.executable, "-m", "bert_flow_tf.cli", "encode", "--input", "-", *arguments]
    options = {"capture_output": True, "text": True, "timeout": 300}
    return subprocess.run(command, input="a cat\nthe cats\n", env=environment, check=False, **options)


def test_a_model_is_downloaded_once_and_goes_on_without_the_hub(served, golden_dir, tmp_path):
    server, environment = served
    done = encode(environment, "--bert_hub", "acme/tiny@v1", "--out", tmp_path / "a.npy")
    assert done.returncode == 0, done.stderr
    taken = {path.rpartition(f"/resolve/{COMMIT}/")[2] for command, path in server.asked if command == "GET"}
    assert "model.safetensors" in taken
    assert not taken & {"pytorch_model.bin", "onnx/model.onnx"}
    # What the hub has, by a folder's path.
    local = golden_dir / "transformers" / "sentence_transformer"
    offline = environment | {"HF_HUB_OFFLINE": "1"}
    for handle, out in ((local, "b.npy"), ("acme/tiny@v1", "c.npy")):
        server.asked.clear()
        done = encode(offline, "--bert_hub", handle, "--out", tmp_path / out)
        assert done.returncode == 0, done.stderr
        assert server.asked == []
    a, b, c = (np.load(tmp_path / name) for name in ("a.npy", "b.npy", "c.npy"))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(a, c)


@pytest.mark.parametrize(
    ("handle", "variables", "parts"),
    [
        ("acme/none", {}, ["acme/none: cannot be read as a folder or a model of http://127.0.0.1"]),
        ("acme/tiny@v9", {}, ["acme/tiny@v9", "model of http://127.0.0.1"]),
        ("acme/secret", {}, ["acme/secret", "401"]),
        ("acme/tiny", {"HF_HUB_OFFLINE": "1"}, ["acme/tiny", "model of http://127.0.0.1"]),
        (
            "acme/tiny",
            {"HF_ENDPOINT": "http://127.0.0.1:9"},
            ["acme/tiny", "model of http://127.0.0.1:9"],
        ),
    ],
)
def test_what_the_hub_does_not_give_is_one_line_before_tensorflow_loads(served, tmp_path, handle, variables, parts):
    _, environment = served
    # Loaded, TensorFlow would be an import that fails.
    (tmp_path / "tensorflow.py").write_text("raise ImportError('TensorFlow was loaded')\n")
    environment |= variables | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{environment.get('PYTHONPATH', '')}"}
    done = encode(environment, "--bert_hub", handle, "--out", tmp_path / "a.npy")
    refusal(done.returncode, done.stderr, "--bert_hub=", *parts)
    assert not (tmp_path / "a.npy").exists()


def test_a_page_that_is_no_hubs_is_one_line(tmp_path):
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>Log in to this network</html>")

        do_HEAD = do_GET

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        environment = os.environ | {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home")}
        done = encode(environment, "--bert_hub", "acme/tiny", "--out", tmp_path / "a.npy")
        server.shutdown()
    refusal(done.returncode, done.stderr, f"model of {address}")


def test_a_token_opens_a_closed_model(served):
    _, environment = served
    script = "from bert_flow_tf.encoder.handles import downloaded_model as d; print(d('acme/secret'))"
    options = {"capture_output": True, "text": True, "check": True}
    done = subprocess.run([sys.executable, "-c", script], env=environment | {"HF_TOKEN": TOKEN}, **options)
    assert (pathlib.Path(done.stdout.strip()) / "model.safetensors").is_file()


PUSH = """
import sys
from bert_flow_tf import BertFlow
from bert_flow_tf.errors import UserError
from bert_flow_tf.encoder.handles import downloaded_model
import numpy as np

model = BertFlow.from_hub(sys.argv[1])
model.fit([f"private sentence {i}" for i in range(64)], epochs=1, show_progress_bar=False)
for arguments, options, words in (
    (["acme/mine"], {"token": "hf_wrong"}, "acme/mine: cannot be read as"),
    (["acme/my model"], {"token": sys.argv[2]}, "acme/my model: cannot be read as"),
):
    try:
        model.push_to_hub(*arguments, **options)
    except UserError as error:
        assert str(error).startswith(words) and chr(10) not in str(error), error
    else:
        raise AssertionError(words)
address = model.push_to_hub("acme/mine", token=sys.argv[2], private=True, commit_message="The first one")
assert address.endswith("/acme/mine/commit/" + sys.argv[3]), address
model.push_to_hub("acme/mine", token=sys.argv[2], branch="mine")
again = BertFlow.from_pretrained("acme/mine@mine")
np.testing.assert_array_equal(again.encode(["the cat"]), model.encode(["the cat"]))
assert again.record.flow is not None
# Another one of that name is not taken for this.
model.push_to_hub("acme/mine", token=sys.argv[2])
assert downloaded_model.cache_info().currsize == 0
try:
    BertFlow.from_pretrained("acme/tiny")
except UserError as error:
    assert "acme--tiny" in str(error), error
else:
    raise AssertionError("acme/tiny is no model of ours")
"""


def test_a_model_is_uploaded_without_anything_private_and_loaded_by_its_name(served, golden_dir, tmp_path):
    server, environment = served
    local = golden_dir / "transformers" / "sentence_transformer"
    environment.pop("HF_TOKEN", None)
    options = {"capture_output": True, "text": True, "timeout": 500, "env": environment}
    done = subprocess.run([sys.executable, "-c", PUSH, str(local), TOKEN, COMMIT], check=False, **options)
    assert done.returncode == 0, done.stderr[-3000:]
    assert server.created["acme/mine"]["visibility"] == "private"
    assert ("POST", "/api/models/acme/mine/commit/main") in server.asked
    assert ("POST", "/api/models/acme/mine/commit/mine") in server.asked
    uploaded = server.uploads / "acme" / "mine"
    card = (uploaded / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: bert-flow-tf\n") and "# mine\n" in card
    for file in uploaded.rglob("*"):
        content = file.read_bytes() if file.is_file() else b""
        for private in (str(tmp_path), str(pathlib.Path(golden_dir).parent), "private sentence", TOKEN):
            assert private.encode() not in content, (file, private)
    # Commands take it by its name as well, offline.
    done = encode_model(environment | {"HF_HUB_OFFLINE": "1"}, "acme/mine@mine", tmp_path / "a.npy")
    assert done.returncode == 0, done.stderr
    assert np.load(tmp_path / "a.npy").shape == (2, 16)
    done = encode_model(environment, "acme/none", tmp_path / "b.npy")
    refusal(
        done.returncode,
        done.stderr,
        "--model=acme/none: cannot be read as a folder or a model of http://127.0.0.1",
    )


@pytest.mark.parametrize(
    ("handle", "expected"),
    [
        ("bert-base-uncased", True),
        ("distilbert-base-cased", True),
        ("sentence-transformers/all-MiniLM-L6-v2@main", True),
        ("my_modl", False),
        ("/models/bert", False),
        ("a/b/c", False),
        ("https://tfhub.dev/x", False),
    ],
)
def test_names_of_models_are_told_from_paths(handle, expected):
    assert is_model_name(handle) is expected


def test_a_path_in_a_folder_that_exists_is_no_name(tmp_path, monkeypatch):
    (tmp_path / "encoders").mkdir()
    monkeypatch.chdir(tmp_path)
    assert not is_model_name("encoders/mine")
    assert is_model_name("encoder/mine")
