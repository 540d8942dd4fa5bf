"""The scoring script prints the original's lines, fast, and bad input is one line and exit status 2."""

import subprocess
import sys

import pytest

from bert_flow_tf import eval_stsb
from tests.refusals import refused_by

HEADER = ["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score"]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in rows))


@pytest.fixture
def glue(tmp_path):
    """A GLUE folder whose STS-B splits have other scores each."""
    for name, scores in (("train.tsv", "1234"), ("dev.tsv", "4321")):
        rows = [["0", "g", "f", "y", "0", "n", "n", "a", "b", score] for score in scores]
        write(tmp_path / "STS-B" / name, [HEADER, *rows])
    write(tmp_path / "STS-B" / "sts-test.csv", [["g", "f", "y", "0", score, "a", "b"] for score in "1243"])
    header = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"]
    write(tmp_path / "SICK-R" / "SICK_test_annotated.txt", [header, *(["1", "a", "b", s, "N"] for s in "1342")])
    header = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    write(
        tmp_path / "MRPC-Regression" / "msr_paraphrase_test.txt", [header, *([q, "1", "2", "a", "b"] for q in "0101")]
    )
    header = ["index", "question", "sentence", "label"]
    labels = ["not_entailment", "entailment", "not_entailment", "entailment"]
    write(tmp_path / "QNLI-Regression" / "dev.tsv", [header, *(["0", "q", "s", label] for label in labels)])
    (tmp_path / "predictions.tsv").write_text("0.1\n0.2\n0.3\n0.4\n")
    return tmp_path


def run(glue, *arguments):
    return eval_stsb.main(["--glue_path", str(glue), "--pred_path", str(glue / "predictions.tsv"), *arguments])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "Pearson: -1.000000, Spearman: -1.000000\n"),
        (["--task_name", "STS-B", "--is_test", "-1"], "Pearson: 1.000000, Spearman: 1.000000\n"),
        (["--task_name=sts-b", "--is_test=1"], "Pearson: 0.800000, Spearman: 0.800000\n"),
        (["--task_name", "SICK-R"], "Pearson: 0.400000, Spearman: 0.400000\n"),
        (["--task_name", "MRPC-regression"], "Pearson: 0.447214, Spearman: 0.447214\nAUC: 0.750000\n"),
        (["--task_name", "QNLI-regression"], "Pearson: 0.447214, Spearman: 0.447214\nAUC: 0.750000\n"),
    ],
)
def test_prints_the_originals_lines(glue, capsys, arguments, line):
    assert run(glue, *arguments) == 0
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (line, "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--is_test", "2"], "--is_test: found 2, expected 1 (test), 0 (dev) or -1 (train)"),
        (["--pred_path", "/no/such/file.tsv"], "/no/such/file.tsv: no such file"),
    ],
)
def test_bad_flags_are_one_line_and_exit_status_2(glue, arguments, words):
    assert words in refused_by(eval_stsb.main, "--glue_path", glue, "--pred_path", glue / "predictions.tsv", *arguments)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0.1\n0.2\nhigh\n0.4\n", "predictions.tsv, line 3: "),
        ("", "found 0 predictions, expected 4"),
        ("0.1\n0.2\n0.3\n", "found 3 predictions, expected 4, one per pair of sts-b's dev split"),
    ],
)
def test_bad_predictions_are_one_line_and_exit_status_2(glue, text, words):
    (glue / "predictions.tsv").write_text(text)
    assert words in refused_by(eval_stsb.main, "--glue_path", glue, "--pred_path", glue / "predictions.tsv")


def test_a_prediction_file_has_to_be_named(capsys):
    with pytest.raises(SystemExit) as raised:
        eval_stsb.main([])
    assert raised.value.code == 2 and "--pred_path" in capsys.readouterr().err


def test_starts_without_tensorflow():
    code = "import sys, bert_flow_tf.eval_stsb; print([m for m in ('tensorflow', 'sklearn') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out == "[]\n"
