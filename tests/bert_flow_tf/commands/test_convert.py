"""`bert-flow convert` on the command line: what it makes, and one line for each mistake."""

import json
import shutil

import pytest

from bert_flow_tf.encoder.source import resolve_encoder
from tests.refusals import refused, succeeds


def test_tf1_checkpoint_becomes_an_encoder_folder(golden_dir, tiny_source, tmp_path):
    succeeds("convert", "--tf1_checkpoint", golden_dir / "bert_tiny", "--out", tmp_path / "out")
    assert resolve_encoder(bert_hub=tmp_path / "out").fingerprint == tiny_source.fingerprint


def test_flag_for_case_wins_over_the_vocabulary_and_overwrite_replaces(
    small_encoder_dir, small_hugging_face_dir, tmp_path
):
    out = shutil.copytree(small_encoder_dir, tmp_path / "out")
    assert json.loads((out / "source.json").read_text())["do_lower_case"] is False
    succeeds("convert", "--huggingface", small_hugging_face_dir, "--out", out, "--uncased", "--overwrite")
    assert json.loads((out / "source.json").read_text())["do_lower_case"] is True
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "0 sources"),
        (["--run", "a", "--huggingface", "b"], "2 sources"),
        (["--huggingface", "a", "--to_tf1"], "--to_tf1: found --huggingface, expected --run"),
        (["--run", "a", "--low_dim", "8"], "--low_dim: found --run, expected --tf1_flow"),
        (["--tf1_flow", "a"], "--sentence_embedding_type: missing"),
        (["--run", "a", "--uncased"], "--cased/--uncased: expected neither with --run"),
        (["--run", "."], "found no checkpoint"),
        (["--tf1_checkpoint", "."], "found no checkpoint"),
        (["--run", "saved", "--to_tf1"], "--run=saved: found a saved model, which has no checkpoint"),
    ],
)
def test_slip_is_one_line_and_writes_nothing(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "bert_flow.json").write_text("{}")
    assert message in refused("convert", "--out", "out", *arguments, unchanged=tmp_path)


def test_vocabulary_that_does_not_fit_the_checkpoint_is_named(golden_dir, tmp_path):
    folder = shutil.copytree(golden_dir / "bert_tiny", tmp_path / "bert")
    with (folder / "vocab.txt").open("a") as vocabulary:
        vocabulary.write("more\n")
    line = refused("convert", "--tf1_checkpoint", folder, "--out", tmp_path / "out", unchanged=tmp_path)
    assert "vocab.txt: found 65 word pieces, expected the configuration's vocab_size, 64" in line
