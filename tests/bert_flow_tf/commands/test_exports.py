"""Commands that only encode take an export's folder, and load no TensorFlow."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from bert_flow_tf.api import BertFlow
from bert_flow_tf.runtime.model import ExportedModel
from tests.bert_flow_tf import small_runs
from tests.refusals import refused, succeeds, user_error

_WITHOUT_TENSORFLOW = """
import json, sys
sys.modules["tensorflow"] = None
from click.testing import CliRunner
from bert_flow_tf.cli import main
for arguments in json.loads(sys.argv[1]):
    outcome = CliRunner().invoke(main, arguments.split())
    assert outcome.exit_code == 0, (arguments, outcome.output, outcome.exception)
    print(json.dumps(outcome.stdout))
"""
_COMMANDS = """
encode --model MODEL --input TEXTS --out OUT.npy ;
encode-folder --model MODEL --input TEXTS --out OUT ;
similarity --model MODEL w1 w2 ;
search --model MODEL --input TEXTS --embeddings OUT w1 ;
duplicates --model MODEL --input TEXTS --out OUT.csv --threshold 0.99 ;
threshold --model MODEL --input TEXTS --false_matches 0.1 --format json
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
def folders(model, tmp_path_factory):
    """The folders of a saved model and of its export."""
    folder = tmp_path_factory.mktemp("exports")
    model.save(folder / "saved")
    model.export(folder / "onnx", format="onnx")
    return folder / "saved", folder / "onnx"


@pytest.fixture
def texts(tmp_path):
    small_runs.write_sentences(tmp_path / "texts.txt", 64)
    return tmp_path / "texts.txt"


def test_from_pretrained_opens_an_export(model, folders):
    opened = BertFlow.from_pretrained(folders[1], truncate_dim=4)
    assert isinstance(opened, ExportedModel)
    assert opened.embedding_size == 4
    found = BertFlow.from_pretrained(folders[1]).encode(["w1 w2", ""])
    np.testing.assert_allclose(found, model.encode(["w1 w2", ""]), rtol=0, atol=1e-5)
    with user_error("dtype: found bfloat16 with"):
        BertFlow.from_pretrained(folders[1], dtype="bfloat16")


def test_commands_give_the_same_without_tensorflow(folders, texts, tmp_path):
    def lines(model, out):
        places = {"MODEL": model, "TEXTS": texts, "OUT": tmp_path / out}
        words = _COMMANDS.split()
        for name, path in places.items():
            words = [word.replace(name, str(path)) for word in words]
        return " ".join(words).split(" ; ")

    saved, onnx = folders
    printed = [succeeds(*line.split()) for line in lines(saved, "tf")]
    others = lines(onnx, "other")
    # The folder that the saved model has written is one of the same model.
    others.append(others[1].replace(str(tmp_path / "other"), str(tmp_path / "tf")))
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_TENSORFLOW, json.dumps(others)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert "0 of them new" in said[-1]
    found, expected = (np.load(tmp_path / f"{name}.npy") for name in ("other", "tf"))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    groups = [pathlib.Path(tmp_path, f"{name}.csv").read_text() for name in ("other", "tf")]
    assert groups[0] == groups[1]
    # An export knows only what comes after the calibration.
    (after,) = json.loads(said[5])["rows"]
    (both,) = json.loads(printed[5])["rows"]
    assert after["cosine"] == pytest.approx(both["after"], abs=1e-4)


def test_what_an_export_cannot_do_is_one_line(folders, texts, tmp_path):
    onnx = folders[1]
    out = ("--model", onnx, "--input", texts, "--out", tmp_path / "out.npy")
    line = refused("encode", *out, "--dtype", "bfloat16", unchanged=tmp_path)
    assert line.startswith(f"--dtype: found it beside --model={onnx}, an export")
    line = refused("export", "--model", onnx, "--out", tmp_path / "again", unchanged=tmp_path)
    assert line.startswith(f"--model={onnx}: found an export, which only encodes; expected ")
    line = refused("isotropy", "--model", onnx, "--input", texts, unchanged=tmp_path)
    assert line.startswith(f"--model={onnx}: found an export")
