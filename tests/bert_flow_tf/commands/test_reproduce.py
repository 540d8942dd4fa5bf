"""Rows over seeds, with a stand-in for the commands that train and score."""

import json

import numpy as np
import pytest

from tests.bert_flow_tf.commands.reproductions import COSINES, GOLD, ReproductionWorkplace
from tests.refusals import bert_flow


@pytest.fixture
def workplace(tmp_path, monkeypatch, sts_run):
    return ReproductionWorkplace(tmp_path, monkeypatch, sts_run)


def reproduce(workplace, *arguments):
    flags = ["--bert_hub=base", f"--glue_dir={workplace.glue}", f"--out={workplace.root / 'out'}"]
    return bert_flow("reproduce", *flags, *arguments)


def record_of(workplace):
    return json.loads((workplace.root / "out" / "reproduction.json").read_text())


def test_what_is_trained_is_trained_with_every_seed_and_the_rest_once(workplace):
    outcome = reproduce(workplace, "--rows=avg,flow-train", "--seeds=2")
    assert outcome.exit_code == 0, outcome.output
    flow = [f"base_{seed}_STS-B_avg-last-2_flow_train" for seed in (1, 2)]
    assert workplace.names() == ["base_1_STS-B_avg", flow[0], flow[0], flow[1], flow[1]]
    record = record_of(workplace)
    plain, flows = record["tasks"]["stsb"]["avg"], record["tasks"]["stsb"]["flow-train"]
    assert [run["scores"]["spearman"]["all"] for run in plain] == [pytest.approx(0.8)]
    assert [run["scores"]["spearman"]["all"] for run in flows] == [pytest.approx(0.8)] * 2
    assert ["agreement" in run["scores"] for run in flows] == [True, False]
    assert [run["model"]["flow"]["training"]["seed"] for run in flows] == [run["seed"] for run in flows] == [1, 2]
    assert (record["seeds"], record["encoder"], plain[0]["scores"]["pairs"]) == ([1, 2], "base", 4)
    lines = outcome.output.splitlines()
    assert [line.split()[0] for line in lines if " STS-B " in line and " 80.00 " in f"{line} "] == ["avg", "flow-train"]
    assert "80.00 ± 0.00 (median 80.00, n = 2)" in outcome.output


def test_sts_12_is_scored_set_by_set_and_learned_from_what_is_scored(workplace):
    senteval = f"--senteval_dir={workplace.root / 'SentEval'}"
    outcome = reproduce(workplace, "--tasks=sts12", "--rows=avg,flow-target", senteval)
    assert outcome.exit_code == 0, outcome.output
    calls = workplace.calls()
    folder = workplace.root / "out/data/STS-12"
    assert {(values["task_name"], values["data_dir"]) for values in calls} == {("STS-12", str(folder))}
    lines = (folder / "full.txt").read_text().splitlines()
    assert (lines[0], len(lines)) == ("MSRpar Boat 0.\tBoat 0.", 20)
    (run,) = record_of(workplace)["tasks"]["sts12"]["flow-target"]
    scores = run["scores"]
    assert (scores["title"], scores["pairs"], scores["spearman"]["wmean"]) == ("STS-12", 20, pytest.approx(0.8))
    assert scores["subsets"]["MSRvid"]["pairs"] == 4
    assert scores["subsets"]["MSRvid"]["pearson"] == pytest.approx(np.corrcoef(COSINES, GOLD)[0, 1])
    assert "Spearman wmean" in outcome.output


def test_several_tasks_share_the_flow_that_is_learned_on_nli(workplace):
    outcome = reproduce(workplace, "--tasks=stsb,qnli", "--rows=flow-nli", "--seeds=4,")
    assert outcome.exit_code == 0, outcome.output
    calls = workplace.calls()
    learned = "base_4_ALLNLI_avg-last-2_flow"
    assert [call["exp_name"] for call in calls] == [
        learned,
        "base_4_STS-B_avg-last-2_flow_nli",
        "base_4_QNLI-Regression_avg-last-2_flow_nli",
    ]
    begun = str(workplace.root / "out" / learned)
    assert [call["init_checkpoint"] for call in calls] == [None, begun, begun]
    tasks = record_of(workplace)["tasks"]
    (run,) = tasks["qnli"]["flow-nli"]
    assert (run["scores"]["metric"], run["scores"]["split"], run["scores"]["auc"]) == ("auc", "dev", {"all": 1.0})


def test_an_interrupted_overwrite_does_every_seed_again(workplace):
    assert reproduce(workplace, "--rows=flow-target", "--seeds=2").exit_code == 0
    workplace.failing = "base_1_STS-B_avg-last-2_flow"
    assert reproduce(workplace, "--rows=flow-target", "--seeds=2", "--overwrite").exit_code == 2
    workplace.failing = None
    workplace.calls()
    assert reproduce(workplace, "--rows=flow-target", "--seeds=2").exit_code == 0
    assert set(workplace.names()) == {f"base_{seed}_STS-B_avg-last-2_flow" for seed in (1, 2)}


def test_what_is_done_is_not_done_again_whatever_the_order_of_the_seeds(workplace):
    for seeds, made in (("1", {1}), ("2", {2}), ("2,1", set())):
        assert reproduce(workplace, "--rows=avg,flow-target", f"--seeds={seeds}").exit_code == 0
        flows = {name for name in workplace.names() if name.endswith("_flow")}
        assert flows == {f"base_{seed}_STS-B_avg-last-2_flow" for seed in made}


def test_predictions_that_are_not_the_tasks_are_no_result(workplace):
    workplace.cosines["STS-B"] = [0.5]
    outcome = reproduce(workplace, "--rows=avg")
    assert outcome.exit_code == 2
    assert "found 1 predictions, expected 4" in outcome.stderr
    assert not (workplace.root / "out" / "reproduction.json").exists()


def test_with_nli_every_seed_has_an_encoder_of_its_own(workplace):
    outcome = reproduce(workplace, "--rows=avg", "--seeds=3,5", "--nli")
    assert outcome.exit_code == 0, outcome.output
    assert workplace.names() == ["nli_base_3", "nli_base_3_STS-B_avg", "nli_base_5", "nli_base_5_STS-B_avg"]


def test_a_failed_stage_leaves_no_results(workplace):
    workplace.failing = "base_1_STS-B_avg"
    outcome = reproduce(workplace, "--rows=avg")
    assert outcome.exit_code == 2 and outcome.stderr == "error: something failed\n"
    assert not (workplace.root / "out" / "reproduction.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows=flow"], "--rows"),
        (["--tasks=sts12"], "--senteval_dir: missing"),
        (["--tasks=qqp"], "--tasks"),
        (["--tasks="], "--tasks"),
        (["--tasks=sickr"], "SICK-R"),
        (["--out=/proc/none"], "--out=/proc/none"),
        (["--bert_premodels=x"], "--bert_premodels"),
        (["--glue_dir=nowhere"], "nowhere"),
        (["--bert_hub="], "--bert_hub"),
    ],
)
def test_a_slip_is_one_line(workplace, arguments, message):
    outcome = reproduce(workplace, *arguments)
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("error: ") and outcome.stderr.count("\n") == 1
    assert message in outcome.stderr


def test_results_of_other_rows_seeds_or_tasks_are_not_lost(workplace):
    assert reproduce(workplace, "--rows=avg,flow-target", "--seeds=2").exit_code == 0
    path = workplace.root / "out/reproduction.json"
    before = path.read_bytes()
    workplace.calls()
    for arguments in (
        ("--rows=avg", "--seeds=2"),
        ("--rows=avg,flow-target", "--seeds=1"),
        ("--rows=avg,flow-target", "--seeds=2", "--nli"),
        ("--rows=avg,flow-target", "--seeds=2", "--tasks=qnli"),
        ("--rows=avg,flow-target", "--seeds=2", "--bert_hub=large"),
    ):
        outcome = reproduce(workplace, *arguments)
        assert outcome.exit_code == 2
        assert outcome.stderr.startswith("error: --out=") and "--overwrite" in outcome.stderr
    assert path.read_bytes() == before
    path.write_text("mine")
    assert f"{path}: " in reproduce(workplace, "--rows=avg").stderr
    assert path.read_text() == "mine"
    assert reproduce(workplace, "--rows=avg", "--overwrite").exit_code == 0
    assert set(record_of(workplace)["tasks"]["stsb"]) == {"avg"}
