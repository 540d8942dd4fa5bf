"""A saved model runs in other libraries, without TensorFlow from the cache."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest

from bert_flow_tf.api import BertFlow
from bert_flow_tf.common import code_files
from bert_flow_tf.encoder import pooling
from bert_flow_tf.export import backends, export
from bert_flow_tf.runtime.programs import PROGRAMS
from tests.bert_flow_tf import small_runs
from tests.refusals import refused, succeeds, user_error

_WITHOUT_TENSORFLOW = """
import json, sys
sys.modules["tensorflow"] = None
from click.testing import CliRunner
from bert_flow_tf.cli import main
for arguments in json.loads(sys.argv[1]):
    outcome = CliRunner().invoke(main, arguments)
    assert outcome.exit_code == 0, (arguments, outcome.output, outcome.exception)
    print(outcome.stdout)
"""


@pytest.fixture(scope="module")
def model(tiny_encoder_dir, require):
    require("tf2onnx")
    require("onnxruntime")
    model = BertFlow.from_hub(tiny_encoder_dir, max_seq_length=8)
    model.prompts = {"title": "w1 ", "document": "w1 "}
    model.default_prompt_name = "title"
    rng = np.random.default_rng(0)
    words = small_runs.TINY_WORDS
    return model.fit([" ".join(rng.choice(words, 4)) for _ in range(200)], method="sn")


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    """The saved model; beside it is the cache with its export."""
    folder = tmp_path_factory.mktemp("backends") / "saved"
    model.save(folder)
    return folder


@pytest.fixture(autouse=True)
def cache(saved, monkeypatch):
    folder = saved.with_name("cache")
    monkeypatch.setenv("BERT_FLOW_CACHE", str(folder))
    return folder


@pytest.fixture
def texts(tmp_path):
    small_runs.write_sentences(tmp_path / "texts.txt", 64)
    return tmp_path / "texts.txt"


@pytest.fixture(params=sorted(PROGRAMS))
def backend(request, require):
    require({"onnx": "onnxruntime"}.get(request.param, request.param))
    return request.param


def test_export_is_made_once_and_again_after_a_change(
    model, saved, cache, backend, monkeypatch, caplog
):
    opened = BertFlow.from_pretrained(saved, backend=backend)
    texts = ["w1 w2", "", "w3 w4 w5"]
    assert not [one for one in caplog.records if one.levelname == "WARNING"]
    np.testing.assert_allclose(opened.encode(texts), model.encode(texts), rtol=0, atol=1e-5)
    assert opened.fingerprint == model.fingerprint
    assert not hasattr(opened, "fit") and not hasattr(opened, "log_prob")
    made = []
    monkeypatch.setattr(export, "export_model", lambda *given: made.append(given))
    BertFlow.from_pretrained(saved, backend=backend)
    assert not made
    changed = shutil.copytree(saved, saved.with_name(f"changed_{backend}"))
    (changed / "README.md").write_text("another card")
    with user_error("no such folder"):
        BertFlow.from_pretrained(changed, backend=backend)
    assert len(made) == 1


_POOLING = """
import tensorflow as tf
from bert_flow_tf.encoder.pooling import POOLINGS, Pooling

def scaled(states, mask):
    return FACTOR * states[:, 0]

POOLINGS["scaled-N"] = lambda n, layers: Pooling((layers - n,), reduce=scaled)
"""


def test_export_is_made_again_after_a_change_of_own_code(
    tiny_encoder_dir, require, tmp_path, monkeypatch
):
    require("onnxruntime")
    monkeypatch.setattr(pooling, "POOLINGS", dict(pooling.POOLINGS))
    monkeypatch.setenv(code_files.VARIABLE, "")
    for factor in ("1", "2"):
        path = tmp_path / "scaled.py"
        path.write_text(_POOLING.replace("FACTOR", factor))
        sys.modules.pop(path.stem, None)
        code_files.import_code(str(path))
        if factor == "1":
            BertFlow.from_hub(tiny_encoder_dir, pooling="scaled-1").save(tmp_path / "own")
        opened = BertFlow.from_pretrained(tmp_path / "own", backend="onnx")
        expected = BertFlow.from_pretrained(tmp_path / "own").encode(["w1 w2", "w3"])
        np.testing.assert_allclose(opened.encode(["w1 w2", "w3"]), expected, rtol=0, atol=1e-5)


def test_export_of_a_script_is_that_of_its_present_code(tiny_encoder_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(pooling, "POOLINGS", dict(pooling.POOLINGS))
    script = types.ModuleType("__main__")
    script.__file__ = str(tmp_path / "script.py")
    monkeypatch.setitem(sys.modules, "__main__", script)
    exec(_POOLING, vars(script))
    BertFlow.from_hub(tiny_encoder_dir, pooling="scaled-1").save(tmp_path / "own")
    exports = []
    monkeypatch.setattr(backends, "cached_folder", lambda folder, *_: exports.append(folder))
    monkeypatch.setattr(backends, "open_export", lambda folder, backend: None)
    for factor in ("1", "2", "1"):
        pathlib.Path(script.__file__).write_text(_POOLING.replace("FACTOR", factor))
        BertFlow.from_pretrained(tmp_path / "own", backend="onnx")
    assert exports[0] == exports[2] != exports[1]


def test_commands_give_the_same_without_tensorflow(saved, cache, backend, texts, tmp_path):
    BertFlow.from_pretrained(saved, backend=backend)
    given = ["--model", str(saved), "--input", str(texts)]
    commands = [
        ["encode", *given, "--out", "OUT.npy"],
        ["encode-folder", *given, "--out", "OUT"],
        ["similarity", "--model", str(saved), "w1 w2", "w2 w3"],
        ["search", *given, "--top_k", "3", "--embeddings", "OUT", "w1"],
        ["duplicates", *given, "--threshold", "0.99", "--out", "OUT.csv"],
    ]
    # The folder that TensorFlow has written is one of the same model, so search takes it.
    for command in commands:
        succeeds(*(one.replace("OUT", str(tmp_path / "tf")) for one in command))
    others = [
        [one.replace("OUT", str(tmp_path / "other")) for one in command] + ["--backend", backend]
        for command in commands
    ]
    others += [[*commands[1][:-1], str(tmp_path / "tf"), "--backend", backend]]
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TENSORFLOW, json.dumps(others)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    assert "0 of them new" in done.stdout.splitlines()[-2]
    found, expected = (np.load(tmp_path / f"{name}.npy") for name in ("other", "tf"))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    groups = [pathlib.Path(tmp_path, f"{name}.csv").read_text() for name in ("other", "tf")]
    assert groups[0] == groups[1]


def test_what_a_backend_cannot_do_is_one_line(saved, sts_run, tiny_encoder_dir, texts, tmp_path):
    out = ("--input", texts, "--out", tmp_path / "out.npy", "--backend", "onnx")
    line = refused("encode", "--model", saved, *out, "--dtype", "bfloat16", unchanged=tmp_path)
    assert line == "--dtype: found bfloat16 with the backend onnx, expected float32"
    line = refused("encode", "--model", sts_run, *out, unchanged=tmp_path)
    assert line.startswith("--backend: found onnx with") and "expected a saved model" in line
    line = refused("encode", "--bert_hub", tiny_encoder_dir, *out, unchanged=tmp_path)
    assert line == "--backend=onnx: missing --model, which it needs"
    with user_error("backend: found 'opnvino'", "did you mean openvino?"):
        BertFlow.from_pretrained(saved, backend="opnvino")
