"""`bert-flow convert`: its folders, and one line for each mistake."""

import json
import shutil

from tests.refusals import refused, succeeds


def test_flags_of_case_and_overwrite(
    golden_dir, tiny_encoder_dir, small_hugging_face_dir, tmp_path
):
    out, tiny = shutil.copytree(tiny_encoder_dir, tmp_path / "out"), golden_dir / "bert_tiny"
    changed = ("--out", out, "--overwrite")
    uncased = (*changed, "--uncased")
    # A Hugging Face folder says it itself.
    assert "--cased: missing" in refused(
        "convert", "--huggingface", small_hugging_face_dir, *uncased
    )
    named = shutil.copytree(tiny, tmp_path / "cased_tiny")
    assert "name cased_tiny" in refused("convert", "--tf1_checkpoint", named, *uncased)
    with (named / "vocab.txt").open("a") as vocabulary:
        vocabulary.write("more\n")
    line = refused("convert", "--tf1_checkpoint", named, *changed, "--cased", unchanged=tmp_path)
    assert "vocab_size: found 64, expected the 65 pieces" in line
    for source in (
        ("--huggingface", small_hugging_face_dir),
        ("--tf1_checkpoint", tiny, "--cased"),
    ):
        succeeds("convert", *source, *changed)
        record = json.loads((out / "source.json").read_text())
        assert (record["do_lower_case"], record["kind"] == "TF1 checkpoint") == (
            False,
            "--cased" in source,
        )
    assert {path.name for path in tmp_path.iterdir()} == {"cased_tiny", "out"}
