"""`bert-flow evaluate`: what it prints and writes, and what it refuses before any work."""

import concurrent.futures
import json
import shutil

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from bert_flow_tf.commands.evaluate import evaluate, evaluation_table
from bert_flow_tf.data.sts_sets import read_task
from bert_flow_tf.errors import UserError
from bert_flow_tf.runs.folder import locked_run
from tests.bert_flow_tf import small_runs
from tests.bert_flow_tf.results import written

WORDS = [f"w{i}" for i in range(25)]


def invoke(*arguments):
    return CliRunner().invoke(evaluate, [str(argument) for argument in arguments])


def refused(*arguments):
    """The line with which the command ends."""
    error = invoke(*arguments).exception
    assert isinstance(error, UserError), error
    assert "\n" not in str(error)
    return str(error)


@pytest.fixture(scope="module")
def senteval_dir(tmp_path_factory):
    return small_runs.write_senteval(tmp_path_factory.mktemp("senteval"), WORDS[:16])


@pytest.fixture
def finished_run(sts_run, tiny_trio, tmp_path, monkeypatch):
    """A copy of a finished run with a flow, whose folder may be written to."""
    monkeypatch.setenv("BERT_FLOW_CACHE", str(tiny_trio["cache_dir"]))
    return shutil.copytree(sts_run, tmp_path / "run")


def test_a_run_that_another_process_works_on_is_not_scored_into_its_folder(finished_run, senteval_dir, tmp_path):
    arguments = ("--model", finished_run, "--tasks", "sts12", "--senteval_dir", senteval_dir)

    # In another thread, as in another process.
    with concurrent.futures.ThreadPoolExecutor(1) as thread, locked_run(finished_run):
        line = thread.submit(refused, *arguments).result()
        elsewhere = thread.submit(invoke, *arguments, "--out", tmp_path / "scores.json").result()
    assert line.startswith(f"{finished_run}: ") and "is using it" in line
    assert elsewhere.exit_code == 0 and not (finished_run / "evaluation.json").exists()


def test_a_run_and_a_model_saved_from_it_have_the_same_scores_beside_them(finished_run, senteval_dir, tmp_path):
    from bert_flow_tf.api import BertFlow

    outcome = invoke("--model", finished_run, "--tasks", "STS-12", "--senteval_dir", senteval_dir)
    assert outcome.exit_code == 0, outcome.output
    written = json.loads((finished_run / "evaluation.json").read_text())
    result = written["tasks"]["sts12"]
    assert result["pairs"] == 9 + 18 + 27 + 36 + 45
    assert result["source"] == str(senteval_dir / "STS" / "STS12-en-test")
    assert len(result["agreement"]["gold"]) == sum(result["agreement"]["counts"]) == result["pairs"]
    # The figures are those of the model's own embeddings and cosines.
    model = BertFlow.load(finished_run)
    subset = read_task("sts12", senteval_dir=senteval_dir).subsets[4]
    cosines = np.diag(model.similarity(model.encode(subset.sentences_a), model.encode(subset.sentences_b)))
    expected = stats.pearsonr(cosines, subset.gold).statistic
    assert result["subsets"][subset.name]["pearson"] == pytest.approx(expected, abs=1e-5)
    assert f"{100 * result['spearman']['wmean']:.2f}" in outcome.output
    assert outcome.output.splitlines()[2].split()[:4] == ["STS-12", "test", "Spearman", "135"]
    config = json.loads((finished_run / "config.json").read_text())
    assert written["model"] == config["model"] | {"checkpoint": str(finished_run / "model.ckpt-3")}
    assert (written["kind"], written["format_version"]) == ("scores", 2)
    made_by = written["made_by"]
    assert made_by["command"] == "bert-flow evaluate" and {"bert-flow-tf", "tensorflow"} <= made_by["libraries"].keys()
    # Those without the flow are the encoder's own, and stand beside them.
    arguments = ("--bert_hub", model.source.bert_hub, "--sentence_embedding_type", "avg-last-2", "--max_seq_length", 8)
    plain = tmp_path / "plain.json"
    arguments = (*arguments, "--tasks", "sts12", "--senteval_dir", senteval_dir, "--out", plain)
    assert invoke(*arguments).exit_code == 0
    assert written["without_flow"] == json.loads(plain.read_text())["tasks"]
    assert f"{100 * written['without_flow']['sts12']['spearman']['wmean']:.2f}" in outcome.output.splitlines()[2]
    saved = model.save(tmp_path / "saved")
    assert invoke("--model", saved, "--tasks", "sts12", "--senteval_dir", senteval_dir).exit_code == 0
    of_saved = json.loads((saved / "evaluation.json").read_text())
    assert of_saved["tasks"] == written["tasks"]
    assert of_saved["model"]["flow"] == written["model"]["flow"]
    assert of_saved["model"]["encoder"]["weights"] == written["model"]["encoder"]["weights"]


def test_encoder_without_a_run_has_its_results_where_out_says(tiny_encoder_dir, senteval_dir, tmp_path):
    out = tmp_path / "new" / "results.json"
    common = ("--bert_hub", tiny_encoder_dir, "--sentence_embedding_type", "cls", "--max_seq_length", 8)
    common = (*common, "--tasks", "sts12", "--senteval_dir", senteval_dir)
    outcome = invoke(*common, "--out", out)
    assert outcome.exit_code == 0, outcome.output
    model = json.loads(out.read_text())["model"]
    assert (model["flow"], model["pooling"], model["encoder"]["fine_tuning"]) == (None, "cls", None)


def test_earlier_results_of_a_run_are_kept_without_overwrite(finished_run, senteval_dir):
    (finished_run / "evaluation.json").write_text("earlier")
    line = refused("--model", finished_run, "--tasks", "sts12", "--senteval_dir", senteval_dir)
    assert line == f"--out={finished_run / 'evaluation.json'}: exists, expected a new file, or --overwrite"
    assert (finished_run / "evaluation.json").read_text() == "earlier"


def test_tasks_are_read_before_the_model(tmp_path, senteval_dir):
    # No such encoder: it would be the error if it came first.
    common = ("--bert_hub", "http://127.0.0.1:9/no_encoder")
    line = refused(*common, "--tasks", "sts12,sicke", "--senteval_dir", senteval_dir)
    assert "unknown task 'sicke', expected some of sts12, " in line and "did you mean" in line


def test_table_lines_up_and_labels_every_figure():
    qnli = written.task_scores("QNLI", 0.703, 5463, metric="auc", split="validation")
    sts12 = written.task_scores("STS-12", {"wmean": 0.71064, "mean": 0.7001, "all": 0.7237}, 3108)
    lines = evaluation_table({"sts12": sts12, "tfds:glue/qnli": qnli}).to_text().splitlines()
    assert lines[:4] == [
        "task            split       metric    pairs  wmean   mean    all",
        "----------------------------------------------------------------",
        "STS-12          test        Spearman  3,108  71.06  70.01  72.37",
        "tfds:glue/qnli  validation  AUC       5,463      -      -  70.30",
    ]
    assert lines[5].startswith("wmean: mean over sub-sets") and len(lines) == 6


def test_a_fall_of_more_than_half_a_point_is_marked():
    tasks = {"sts12": written.task_scores("STS-12", {"wmean": 0.71, "mean": 0.6, "all": 0.6}, 3108)}

    def lines(score):
        plain = {"sts12": written.task_scores("STS-12", {"wmean": score, "mean": 0.7, "all": 0.7}, 3108)}
        return evaluation_table(tasks, plain).to_text().splitlines()

    assert lines(0.7149)[2].endswith("  71.49") and len(lines(0.7149)) == 5
    assert lines(0.7151)[2].endswith("  71.51 (falls by 0.51)")
    assert "paper_effect.sh shows it" in lines(0.7151)[5]


def test_sentevals_classes_are_scored_beside_similarities_with_the_flow_and_without(
    finished_run, senteval_dir, tmp_path
):
    out = tmp_path / "scores.json"
    arguments = ("--tasks", "senteval:cr,sts12", "--senteval_dir", senteval_dir, "--out", out)
    outcome = invoke("--model", finished_run, *arguments)
    assert outcome.exit_code == 0, outcome.exception
    record = json.loads(out.read_text())
    for scores in (record["tasks"], record["without_flow"]):
        assert list(scores) == ["senteval:cr", "sts12"]
        assert scores["senteval:cr"]["accuracy"]["all"] > 0.7 and scores["senteval:cr"]["pairs"] == 60
    (row,) = [line for line in outcome.output.splitlines() if line.startswith("senteval:cr")]
    assert f"{100 * record['tasks']['senteval:cr']['accuracy']['all']:.2f}" in row and "accuracy" in row
    assert refused("--model", finished_run, "--tasks", "senteval:cr", "--out", tmp_path / "b.json").startswith(
        "senteval_dir: missing"
    )
