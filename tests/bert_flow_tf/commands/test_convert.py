"""`bert-flow convert`: its folders, and one line for each mistake."""

import json
import shutil

from bert_flow_tf.encoder.source import resolve_encoder
from tests.refusals import refused, succeeds


def test_flags_of_case_and_overwrite(golden_dir, tiny_source, small_hugging_face_dir, tmp_path):
    out, tiny = tmp_path / "out", golden_dir / "bert_tiny"
    succeeds("convert", "--tf1_checkpoint", tiny, "--out", out)
    assert resolve_encoder(bert_hub=out).fingerprint == tiny_source.fingerprint
    changed = ("--out", out, "--overwrite")
    uncased = (*changed, "--uncased")
    # A Hugging Face folder says it itself.
    assert "--uncased" in refused("convert", "--huggingface", small_hugging_face_dir, *uncased)
    succeeds("convert", "--huggingface", small_hugging_face_dir, "--out", tmp_path / "cased")
    assert json.loads((tmp_path / "cased" / "source.json").read_text())["do_lower_case"] is False
    named = shutil.copytree(tiny, tmp_path / "cased_tiny")
    assert "name cased_tiny" in refused("convert", "--tf1_checkpoint", named, *uncased)
    with (named / "vocab.txt").open("a") as vocabulary:
        vocabulary.write("more\n")
    line = refused("convert", "--tf1_checkpoint", named, *changed, "--cased", unchanged=tmp_path)
    assert "vocab_size: found 64, expected the 65 pieces" in line
    assert json.loads((out / "source.json").read_text())["do_lower_case"] is True
    succeeds("convert", "--tf1_checkpoint", tiny, *changed, "--cased")
    assert json.loads((out / "source.json").read_text())["do_lower_case"] is False
    assert {path.name for path in tmp_path.iterdir()} == {"cased", "cased_tiny", "out"}
