"""`bert-flow convert` on the command line: what it makes, and one line for each mistake."""

import json
import shutil

from bert_flow_tf.encoder.source import resolve_encoder
from tests.refusals import refused, succeeds


def test_tf1_checkpoint_becomes_an_encoder_folder(golden_dir, tiny_source, tmp_path):
    succeeds("convert", "--tf1_checkpoint", golden_dir / "bert_tiny", "--out", tmp_path / "out")
    assert resolve_encoder(bert_hub=tmp_path / "out").fingerprint == tiny_source.fingerprint


def test_flag_for_case_wins_unless_there_are_capitals_and_overwrite_replaces(
    golden_dir, tiny_encoder_dir, small_hugging_face_dir, tmp_path
):
    out = shutil.copytree(tiny_encoder_dir, tmp_path / "out")
    capitals = ("convert", "--huggingface", small_hugging_face_dir, "--out", out, "--uncased", "--overwrite")
    assert "capitals in the vocabulary" in refused(*capitals)
    named = shutil.copytree(golden_dir / "bert_tiny", tmp_path / "cased_tiny")
    assert "name cased_tiny" in refused("convert", "--tf1_checkpoint", named, *capitals[3:])
    assert json.loads((out / "source.json").read_text())["do_lower_case"] is True
    succeeds("convert", "--tf1_checkpoint", golden_dir / "bert_tiny", "--out", out, "--cased", "--overwrite")
    assert json.loads((out / "source.json").read_text())["do_lower_case"] is False
    assert {path.name for path in tmp_path.iterdir()} == {"cased_tiny", "out"}


def test_vocabulary_that_does_not_fit_the_checkpoint_is_named(golden_dir, tmp_path):
    folder = shutil.copytree(golden_dir / "bert_tiny", tmp_path / "bert")
    with (folder / "vocab.txt").open("a") as vocabulary:
        vocabulary.write("more\n")
    line = refused("convert", "--tf1_checkpoint", folder, "--out", tmp_path / "out", unchanged=tmp_path)
    assert "vocab_size: found 64, expected the 65 pieces" in line
