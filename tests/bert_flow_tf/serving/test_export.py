"""A SavedModel that needs nothing beside it and answers as the model it was made of."""

import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner

from bert_flow_tf.api import BertFlow
from bert_flow_tf.cli import main
from bert_flow_tf.errors import UserError
from bert_flow_tf.serving.export import CHECKED_SENTENCES

SENTENCES = ["w1 w2 w3", "", "W4, w5!", "w5 w6 w7 w8 w9 w10 w11 w12 w13"]
_ROOT = pathlib.Path(__file__).parents[3]

# Knows nothing of this project, as a server does not.
_CLIENT = """
import json, sys
import tensorflow as tf
import tensorflow_text
answer = tf.saved_model.load(sys.argv[1]).signatures["serving_default"](sentences=tf.constant(json.loads(sys.argv[2])))
assert not [name for name in sys.modules if name.split(".")[0] in ("bert_flow_tf", "glow")]
print(json.dumps(answer["embedding"].numpy().tolist()))
"""


@pytest.fixture(scope="module")
def model(sts_run):
    return BertFlow.load(sts_run)


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    return model.export(tmp_path_factory.mktemp("export") / "model")


@pytest.fixture(scope="module")
def served(exported):
    return tf.saved_model.load(str(exported.path)).signatures["serving_default"]


def bert_flow(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def refused(*arguments):
    """The line that the command ends with; its status must be 2 and the line its only output."""
    outcome = bert_flow("export", *arguments)
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("error: ") and outcome.stderr.count("\n") == 1
    return outcome.stderr


def test_signature_is_from_sentences_to_embedding(served):
    (_, inputs), outputs = served.structured_input_signature, served.structured_outputs
    assert {name: (spec.dtype, spec.shape.as_list()) for name, spec in inputs.items()} == {
        "sentences": (tf.string, [None])
    }
    assert {name: (spec.dtype, spec.shape.as_list()) for name, spec in outputs.items()} == {
        "embedding": (tf.float32, [None, 32])
    }


def test_served_embeddings_are_the_models(model, served):
    expected = model.encode(SENTENCES)
    found = served(sentences=tf.constant(SENTENCES))["embedding"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_batch_of_no_sentence_gives_no_embedding(served):
    assert served(sentences=tf.constant([], tf.string))["embedding"].shape == (0, 32)


def test_self_check_reports_the_difference_that_there_is(model, exported, served):
    live = model.encode(CHECKED_SENTENCES)
    found = served(sentences=tf.constant(CHECKED_SENTENCES))["embedding"].numpy()
    assert exported.max_difference == np.abs(found - live).max()
    assert exported.max_value == np.abs(live).max()


def test_folder_holds_vocabulary_and_a_description_without_paths(model, exported):
    assert (exported.path / "assets" / "vocab.txt").read_text().split("\n")[5] == "w0"
    text = (exported.path / "assets.extra" / "config.json").read_text()
    description = json.loads(text)
    assert description["encoder_fingerprint"] == model.source.fingerprint
    assert (description["sentence_embedding_type"], description["max_seq_length"]) == ("avg-last-2", 8)
    assert description["flow_config"]["n_levels"] == 3
    assert str(model.source.encoder_dir.parent) not in text


def test_another_process_serves_it_without_the_run_the_encoder_or_this_project(model, exported, tmp_path):
    moved = shutil.copytree(exported.path, tmp_path / "1")
    kept = model.source.encoder_dir
    hidden = kept.rename(kept.with_name("hidden"))
    try:
        command = [sys.executable, "-c", _CLIENT, str(moved), json.dumps(SENTENCES)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    finally:
        hidden.rename(kept)
    assert done.returncode == 0, done.stderr
    expected = model.encode(SENTENCES)
    np.testing.assert_allclose(json.loads(done.stdout), expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_encoder_without_flow_and_with_dropout_is_exported_without_either(small_encoder_dir, tmp_path):
    model = BertFlow.from_hub(str(small_encoder_dir), max_seq_length=10)
    path = model.export(tmp_path, version=3, normalize=True).path
    assert path == tmp_path / "3"
    served = tf.saved_model.load(str(path)).signatures["serving_default"]
    sentences = ["The cat sat.", "cats"]
    first, second = (served(sentences=tf.constant(sentences))["embedding"].numpy() for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, model.encode(sentences, normalize_embeddings=True), rtol=0, atol=1e-6)
    assert json.loads((path / "assets.extra" / "config.json").read_text())["normalized"] is True


@pytest.mark.parametrize("value", [np.nan, 2.0])
def test_export_that_answers_otherwise_is_refused_and_leaves_nothing(model, tmp_path, monkeypatch, value):
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda *args, **options: encode(*args, **options) * np.float32(value))
    with pytest.raises(UserError, match=r"differs from the model by .*nothing was written"):
        model.export(tmp_path / "some" / "model")
    assert list(tmp_path.iterdir()) == []


def test_version_that_is_there_stays_unless_overwritten(model, tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_text("old")
    with pytest.raises(UserError, match="exists, expected a new version, or --overwrite"):
        model.export(tmp_path)
    assert (tmp_path / "1" / "saved_model.pb").read_text() == "old"
    model.export(tmp_path, overwrite=True)
    assert (tmp_path / "1" / "variables").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_overwrite_replaces_nothing_but_an_export(model, tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match=r"without a saved_model\.pb"):
        model.export(tmp_path, overwrite=True)
    assert (tmp_path / "1" / "thesis.txt").read_text() == "mine"


def test_command_writes_a_version_and_says_how_far_it_is_from_the_model(sts_run, tmp_path):
    command = [
        sys.executable,
        "-m",
        "bert_flow_tf.cli",
        "export",
        f"--run={sts_run}",
        f"--out={tmp_path}",
        "--version=2",
    ]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"SavedModel written: {tmp_path}/2 (reloaded: max difference ")
    assert done.stdout.count("\n") == 1
    assert (tmp_path / "2" / "saved_model.pb").is_file()


def test_mistakes_on_the_command_line_are_one_line_each(sts_run, tmp_path):
    out = tmp_path / "out"
    assert "holds no checkpoint" in refused("--run", tmp_path, "--out", out)
    assert "neither a folder nor a checkpoint" in refused("--run", tmp_path / "nowhere", "--out", out)
    assert "--version: found 0, expected a positive" in refused("--run", sts_run, "--out", out, "--version=0")
    unfinished = shutil.copytree(sts_run, tmp_path / "unfinished")
    (unfinished / "train_results.json").unlink()
    assert "training has not finished" in refused("--run", unfinished, "--out", out)
    assert not out.exists()
    (out / "1").mkdir(parents=True)
    assert "exists, expected a new version" in refused("--run", sts_run, "--out", out)
    (tmp_path / "file").write_text("")
    assert "expected a place for a directory" in refused("--run", sts_run, "--out", tmp_path / "file")
