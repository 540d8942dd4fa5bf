"""`bert-flow convert` on the command line: status, and one line for each mistake."""

import json
import pathlib
import shutil

import pytest
from click.testing import CliRunner

from bert_flow_tf.cli import main
from bert_flow_tf.encoder import resolve_encoder


def bert_flow(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def refused(*arguments):
    """The line that the command ends with; its status must be 2 and the line its only output."""
    outcome = bert_flow(*arguments)
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("error: ")
    assert outcome.stderr.count("\n") == 1
    return outcome.stderr


def test_tf1_checkpoint_becomes_an_encoder_folder_and_is_kept_without_overwrite(golden_dir, tiny_source, tmp_path):
    out = tmp_path / "out"
    outcome = bert_flow("convert", "--tf1_checkpoint", golden_dir / "bert_tiny", "--out", out)
    assert outcome.exit_code == 0, outcome.output
    assert resolve_encoder(bert_hub=out).fingerprint == tiny_source.fingerprint
    line = refused("convert", "--tf1_checkpoint", golden_dir / "bert_tiny", "--out", out)
    assert "exists, expected a new folder or --overwrite" in line


def test_flag_for_case_wins_over_the_vocabulary_and_overwrite_replaces(
    small_encoder_dir, small_hugging_face_dir, tmp_path
):
    out = shutil.copytree(small_encoder_dir, tmp_path / "out")
    assert json.loads((out / "source.json").read_text())["do_lower_case"] is False
    outcome = bert_flow("convert", "--huggingface", small_hugging_face_dir, "--out", out, "--uncased", "--overwrite")
    assert outcome.exit_code == 0, outcome.output
    assert json.loads((out / "source.json").read_text())["do_lower_case"] is True
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_slip_in_the_flags_is_one_line():
    assert "bert-flow convert: Missing option '--out'" in refused("convert")
    assert "--tf2" in refused("convert", "--tf2")
    assert "Invalid value for '--max_seq_length'" in refused("convert", "--out", "x", "--max_seq_length", "two")


def test_exactly_one_source_is_wanted(tmp_path):
    assert "0 sources" in refused("convert", "--out", tmp_path / "out")
    assert "2 sources" in refused("convert", "--out", tmp_path / "out", "--run", "a", "--huggingface", "b")


def test_overwrite_replaces_nothing_but_an_encoder_folder(golden_dir, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    line = refused("convert", "--tf1_checkpoint", golden_dir / "bert_tiny", "--out", tmp_path, "--overwrite")
    assert "no encoder folder to overwrite" in line
    assert (tmp_path / "thesis.txt").read_text() == "mine"


@pytest.fixture
def tf1_dir(golden_dir, tmp_path):
    """A copy of the golden checkpoint to break."""
    return pathlib.Path(shutil.copytree(golden_dir / "bert_tiny", tmp_path / "bert"))


def test_missing_folder_and_missing_checkpoint_are_named(tmp_path):
    line = refused("convert", "--tf1_checkpoint", tmp_path / "nowhere", "--out", tmp_path / "out")
    assert "nowhere" in line
    line = refused("convert", "--tf1_checkpoint", tmp_path, "--out", tmp_path / "out")
    assert "found no checkpoint" in line


def test_vocabulary_that_does_not_fit_the_checkpoint_is_named(tf1_dir, tmp_path):
    vocab = (tf1_dir / "vocab.txt").read_text().rstrip("\n")
    (tf1_dir / "vocab.txt").write_text(f"{vocab}\nmore\n")
    line = refused("convert", "--tf1_checkpoint", tf1_dir, "--out", tmp_path / "out")
    assert "vocab.txt: 65 word pieces, the configuration's vocab_size is 64" in line
    assert not (tmp_path / "out").exists()


def test_run_without_a_checkpoint_is_named(tmp_path):
    assert "holds no checkpoint" in refused("convert", "--run", tmp_path, "--out", tmp_path / "out")
