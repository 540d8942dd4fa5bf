"""The scoring script prints the original's lines."""

import pytest

from bert_flow_tf import eval_stsb
from tests.bert_flow_tf.small_runs import STSB_HEADER, write_tsv
from tests.refusals import refused_by


@pytest.fixture
def glue(tmp_path):
    """A GLUE folder whose STS-B splits have other scores each."""
    for name, scores in (("train.tsv", "1234"), ("dev.tsv", "4321")):
        rows = [[*"0gfy0nnab", score] for score in scores]
        write_tsv(tmp_path / "STS-B" / name, [STSB_HEADER, *rows])
    write_tsv(tmp_path / "STS-B" / "sts-test.csv", [[*"gfy0", score, *"ab"] for score in "1243"])
    header = ["pair_ID", "sentence_A", "sentence_B", "relatedness_score", "entailment_judgment"]
    write_tsv(
        tmp_path / "SICK-R" / "SICK_test_annotated.txt",
        [header, *([*"1ab", score, "N"] for score in "1342")],
    )
    header = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"]
    write_tsv(
        tmp_path / "MRPC-Regression" / "msr_paraphrase_test.txt",
        [header, *([q, *"12ab"] for q in "0101")],
    )
    header = ["index", "question", "sentence", "label"]
    labels = ["not_entailment", "entailment"] * 2
    write_tsv(
        tmp_path / "QNLI-Regression" / "dev.tsv", [header, *([*"0qs", label] for label in labels)]
    )
    (tmp_path / "predictions.tsv").write_text("0.1\n0.2\n0.3\n0.4\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "Pearson: -1.000000, Spearman: -1.000000\n"),
        (["--task_name", "STS-B", "--is_test", "-1"], "Pearson: 1.000000, Spearman: 1.000000\n"),
        (["--task_name=sts-b", "--is_test=1"], "Pearson: 0.800000, Spearman: 0.800000\n"),
        (["--task_name", "SICK-R"], "Pearson: 0.400000, Spearman: 0.400000\n"),
        (
            ["--task_name", "MRPC-regression"],
            "Pearson: 0.447214, Spearman: 0.447214\nAUC: 0.750000\n",
        ),
        (
            ["--task_name", "QNLI-regression"],
            "Pearson: 0.447214, Spearman: 0.447214\nAUC: 0.750000\n",
        ),
    ],
)
def test_prints_the_originals_lines(glue, capsys, arguments, line):
    files = ["--glue_path", str(glue), "--pred_path", str(glue / "predictions.tsv")]
    assert eval_stsb.main([*files, *arguments]) == 0
    assert tuple(capsys.readouterr()) == (line, "")


def test_mistakes_are_one_line(glue):
    command = eval_stsb.main, "--glue_path", glue, "--pred_path"
    predictions = glue / "predictions.tsv"
    assert "--is_test: found 2, expected 1 (test), 0 (dev) or -1" in refused_by(
        *command, predictions, "--is_test", "2"
    )
    assert "/no/file.tsv: no such file" in refused_by(*command, "/no/file.tsv")
    for text, found in (
        ("0.1\n0.2\nhigh\n0.4\n", "tsv, line 3: "),
        ("", "found 0 predictions, expected 4"),
    ):
        predictions.write_text(text)
        assert found in refused_by(*command, predictions)
