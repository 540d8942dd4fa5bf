"""`bert-flow export`: mistakes that only the run tells; tests/bert_flow_tf/serving has what it writes."""

import shutil

from tests.refusals import refused


def test_mistakes_are_one_line_each(sts_run, tmp_path):
    out = tmp_path / "out"
    unfinished = shutil.copytree(sts_run, tmp_path / "unfinished")
    (unfinished / "train_results.json").unlink()
    foreign = ["--format=sentence-transformers"]
    for model, flags, message in (
        (tmp_path, [], f"{tmp_path}: "),
        (sts_run, ["--version=0"], "'--version': 0"),
        (sts_run, ["--overwrite"], "--overwrite: missing the version"),
        (sts_run, ["--low_dim=5"], "--low_dim: found 5"),
        (unfinished, [], f"{unfinished}: "),
        (sts_run, [*foreign, "--version=1"], "--version: found 1"),
        (sts_run, [*foreign, "--dtype=bfloat16"], "--dtype: found bfloat16"),
    ):
        assert message in refused("export", "--model", model, "--out", out, *flags)
    assert not out.exists()
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "bert_flow.json").write_text("{}")
    assert f"--out={saved}" in refused("export", "--model", sts_run, "--out", saved, unchanged=saved)
    assert str(unfinished / "config.json") in refused("export", "--model", sts_run, "--out", unfinished / "config.json")
