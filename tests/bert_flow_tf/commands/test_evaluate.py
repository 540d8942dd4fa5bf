"""`bert-flow evaluate`: its output, its records and its mistakes."""

import concurrent.futures
import json
import shutil

import msgspec
import pytest
from scipy import stats

from bert_flow_tf.api import BertFlow
from bert_flow_tf.tasks.scored_tasks import read_task
from bert_flow_tf.training.run_folder import locked_run
from tests.bert_flow_tf import small_runs
from tests.refusals import refused, succeeds


@pytest.fixture(scope="module")
def senteval_dir(tmp_path_factory):
    return small_runs.write_senteval(
        tmp_path_factory.mktemp("senteval"), small_runs.TINY_WORDS[:16]
    )


@pytest.fixture
def finished_run(sts_run, tmp_path):
    """A copy of a finished run with a flow."""
    return shutil.copytree(sts_run, tmp_path / "run")


def test_a_run_in_use_is_not_scored_into_its_folder(finished_run, senteval_dir, tmp_path):
    arguments = (
        "evaluate",
        "--tasks",
        "STS-12",
        "--senteval_dir",
        senteval_dir,
        "--model",
        finished_run,
    )
    # Another thread is refused as another process is.
    with concurrent.futures.ThreadPoolExecutor(1) as thread, locked_run(finished_run):
        assert "is using it" in thread.submit(refused, *arguments, unchanged=finished_run).result()
        thread.submit(succeeds, *arguments, "--out", tmp_path / "scores.json").result()
    assert not (finished_run / "evaluation.json").exists()
    (finished_run / "evaluation.json").write_text("earlier")
    line = refused(*arguments, unchanged=finished_run)
    assert "evaluation.json: exists" in line and "--overwrite" in line


def test_a_run_and_a_model_saved_from_it_have_the_same_scores(finished_run, senteval_dir, tmp_path):
    evaluate = ("evaluate", "--tasks", "STS-12", "--senteval_dir", senteval_dir)
    printed = succeeds(*evaluate, "--model", finished_run)
    record = json.loads((finished_run / "evaluation.json").read_text())
    assert (record["kind"], record["made_by"]["command"]) == ("scores", "bert-flow evaluate")
    (written,) = record["runs"]
    result = written["tasks"]["sts12"]
    assert result["pairs"] == 9 + 18 + 27 + 36 + 45
    assert result["source"] == str(senteval_dir / "STS" / "STS12-en-test")
    # The figures are those of the model's own embeddings and cosines.
    model = BertFlow.load(finished_run)
    subset = read_task("sts12", senteval_dir=senteval_dir).subsets["surprise.SMTnews"]
    cosines = model.similarity_pairwise(subset.sentences_a, subset.sentences_b)
    expected = stats.pearsonr(cosines, subset.labels).statistic
    assert result["subsets"]["surprise.SMTnews"]["by_metric"]["pearson"] == pytest.approx(
        expected, abs=1e-5
    )
    title, _, _, row, *_ = printed.splitlines()
    assert "8 word pieces" in title and " STS-12  test   Spearman wmean    135  " in row
    for scores in (written["tasks"], written["without_flow"]):
        assert f"{100 * scores['sts12']['by_metric']['spearman']['wmean']:.2f}" in row
    config = json.loads((finished_run / "config.json").read_text())
    assert written["model"] == config["model"] | {"checkpoint": str(finished_run / "model.ckpt-3")}
    # Those without the flow are the encoder's own.
    plain = tmp_path / "new" / "plain.json"
    options = ("--pooling", "avg-last-2", "--max_seq_length", 8, "--out", plain)
    succeeds(*evaluate, "--bert_hub", model.source.bert_hub, *options)
    (of_plain,) = json.loads(plain.read_text())["runs"]
    assert (of_plain["tasks"], of_plain["model"]["flow"]) == (written["without_flow"], None)
    saved = model.save(tmp_path / "saved")
    names = sorted(saved.iterdir())
    assert "STS-12" in succeeds(*evaluate, "--model", saved)
    assert sorted(saved.iterdir()) == names
    succeeds(*evaluate, "--model", saved, "--out", tmp_path / "of_saved.json")
    (of_saved,) = json.loads((tmp_path / "of_saved.json").read_text())["runs"]
    assert (of_saved["tasks"], of_saved["model"]["flow"]) == (
        written["tasks"],
        written["model"]["flow"],
    )
    assert of_saved["model"]["encoder"]["weights"] == written["model"]["encoder"]["weights"]


@pytest.mark.parametrize(
    ("scores", "metric"), [("0.3,0.7,0.9,0.2", "spearman"), ("0,1,1,0", "auc")]
)
def test_own_pairs_are_scored_without_learning(finished_run, tmp_path, scores, metric):
    model = BertFlow.load(finished_run)
    a, b = ["w1 w2", "w3", "w4 w5", "w6 w7"], ["w2 w3", "w3 w4", "w4", "w9"]
    gold = [float(score) for score in scores.split(",")]
    rows = [f"{x}\t{y}\t{z}\n" for x, y, z in zip(a, b, gold, strict=True)]
    (tmp_path / "pairs.tsv").write_text("".join(rows))
    form = ("--pair_columns", "1,2,3", "--no_pair_header")
    pairs = ("--pairs", tmp_path / "pairs.tsv", *form)
    out = tmp_path / "scores.json"
    succeeds("evaluate", "--model", finished_run, *pairs, "--out", out)
    found = json.loads(out.read_text())["runs"][0]["tasks"]["pairs"]
    assert found["by_metric"].keys() >= {metric}
    assert found == json.loads(msgspec.json.encode(model.evaluate((a, b, gold)).tasks["pairs"]))
    assert "expected one of --tasks, --pairs" in refused(
        "evaluate", "--model", finished_run, "--out", out
    )
