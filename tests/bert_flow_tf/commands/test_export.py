"""`bert-flow export`: what it prints, and one line for each mistake."""

import shutil

from click.testing import CliRunner

from bert_flow_tf.cli import main


def bert_flow(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def refused(*arguments):
    """The line that the command ends with; its status must be 2 and the line its only output."""
    outcome = bert_flow("export", *arguments)
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("error: ") and outcome.stderr.count("\n") == 1
    return outcome.stderr


def test_mistakes_on_the_command_line_are_one_line_each(sts_run, tmp_path):
    out = tmp_path / "out"
    assert "holds no checkpoint" in refused("--model", tmp_path, "--out", out)
    assert "neither a folder nor a checkpoint" in refused("--model", tmp_path / "nowhere", "--out", out)
    assert "--version: found 0, expected a positive" in refused("--model", sts_run, "--out", out, "--version=0")
    unfinished = shutil.copytree(sts_run, tmp_path / "unfinished")
    (unfinished / "train_results.json").unlink()
    assert "training has not finished" in refused("--model", unfinished, "--out", out)
    assert not out.exists()
    (out / "1").mkdir(parents=True)
    assert "exists, expected a new version" in refused("--model", sts_run, "--out", out, "--version=1")
    (tmp_path / "file").write_text("")
    assert "expected a place for a directory" in refused("--model", sts_run, "--out", tmp_path / "file")


def test_help_shows_how():
    text = bert_flow("export", "--help").stdout
    assert "bert-flow export --model runs/stsb_flow --out exported/stsb --normalize" in text
    assert "[float32|bfloat16]" in text
