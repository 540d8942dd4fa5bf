"""`bert-flow export`: one line for each mistake, before TensorFlow loads where that is possible."""

import shutil

from bert_flow_tf.api import BertFlow
from tests.refusals import refused


def test_mistakes_on_the_command_line_are_one_line_each(sts_run, tmp_path):
    out = tmp_path / "out"
    unfinished = shutil.copytree(sts_run, tmp_path / "unfinished")
    (unfinished / "train_results.json").unlink()
    for model, flags, message in (
        (tmp_path, [], "(encoders are for"),
        (sts_run, ["--version=0"], "'--version': 0"),
        (sts_run, [f"--version={2**63}"], f"'--version': {2**63}"),
        (sts_run, ["--overwrite"], "--overwrite: missing the version"),
        (sts_run, ["--low_dim=5"], "--low_dim: found 5, expected a divisor"),
        (unfinished, [], "training has not finished"),
        (sts_run, ["--format=tflite"], "'tflite' is not one of 'savedmodel', 'sentence-transformers', 'onnx'"),
        (
            sts_run,
            ["--format=sentence-transformers", "--version=1"],
            "--version: found 1 with the format sentence-transformers",
        ),
        (
            sts_run,
            ["--format=sentence-transformers", "--dtype=bfloat16"],
            "--dtype: found bfloat16 with the format sentence-transformers",
        ),
    ):
        assert message in refused("export", "--model", model, "--out", out, *flags)
    assert not out.exists()
    (tmp_path / "file").write_text("")
    saved = BertFlow.load(sts_run).save(tmp_path / "saved")
    assert "holds a saved model, expected" in refused("export", "--model", sts_run, "--out", saved, unchanged=saved)
    assert "cannot be written to" in refused("export", "--model", sts_run, "--out", tmp_path / "file")
