"""Rows over seeds, with a stand-in that trains and scores."""

import json
import shutil

import numpy as np
import pytest

from bert_flow_tf.data.sts_sets import SENTEVAL_SUBSETS
from tests.bert_flow_tf.recipe.workplace import Workplace
from tests.bert_flow_tf.small_runs import write_tsv
from tests.refusals import bert_flow, refusal, succeeds

COSINES = [0.1, 0.4, 0.2, 0.9]
GOLD = [1, 2, 3, 4]  # Spearman with COSINES: .8


class ReproductionWorkplace(Workplace):
    """`Workplace` with tasks of four pairs, whose runs are copies."""

    def __init__(self, root, monkeypatch, finished_run):
        super().__init__(root, monkeypatch)
        self.finished_run, self.out = finished_run, root / "out"
        self.record = self.out / "reproduction.json"
        boats = [[f"Boat {i}."] * 2 for i in range(len(GOLD))]
        gold = [[str(score)] for score in GOLD]
        write_tsv(
            self.glue / "STS-B" / "test.tsv", [["-"] * 7 + [*pair] for pair in [["sentence1", "sentence2"], *boats]]
        )
        write_tsv(
            self.glue / "STS-B" / "sts-test.csv", [["-"] * 4 + [*g, *p] for g, p in zip(gold, boats, strict=True)]
        )
        qnli = [[*p, label] for p, label in zip(boats, ["not_entailment", "entailment"] * 2, strict=True)]
        write_tsv(
            self.glue / "QNLI-Regression" / "dev.tsv",
            [["index", "question", "sentence", "label"], *(["-", *q] for q in qnli)],
        )
        folder = root / "SentEval" / "STS" / "STS12-en-test"
        for name in SENTEVAL_SUBSETS["sts12"]:
            write_tsv(folder / f"STS.input.{name}.txt", [[f"{name} {a}", b] for a, b in boats])
            write_tsv(folder / f"STS.gs.{name}.txt", gold)
        self.cosines = {"STS-B": COSINES, "QNLI-Regression": COSINES, "STS-12": COSINES * 5}

    def leave_run(self, run_dir):
        shutil.copytree(self.finished_run, run_dir, dirs_exist_ok=True)
        for path in run_dir.glob("test_*"):
            path.unlink()

    def arguments(self, *more):
        """Arguments of the command."""
        return "reproduce", "--bert_hub=base", f"--glue_dir={self.glue}", f"--out={self.out}", *more

    def refused(self, *more):
        """Return the line of a failed command."""
        outcome = bert_flow(*self.arguments(*more))
        return refusal(outcome.exit_code, outcome.stderr, after_log=True)

    def reproduce(self, *more):
        """Return the tasks of the record, and what is printed."""
        printed = succeeds(*self.arguments(*more))
        return json.loads(self.record.read_text())["tasks"], printed


@pytest.fixture
def workplace(tmp_path, monkeypatch, sts_run):
    return ReproductionWorkplace(tmp_path, monkeypatch, sts_run)


def test_what_is_trained_has_every_seed_and_the_rest_one(workplace):
    tasks, printed = workplace.reproduce("--rows=avg,flow-train", "--seeds=2")
    flow = [f"base_{seed}_STS-B_avg-last-2_flow_train" for seed in (1, 2)]
    assert workplace.names() == ["base_1_STS-B_avg", flow[0], flow[0], flow[1], flow[1]]
    plain, flows = tasks["stsb"]["avg"], tasks["stsb"]["flow-train"]
    assert [run["scores"]["spearman"]["all"] for run in (*plain, *flows)] == [pytest.approx(0.8)] * 3
    assert ["agreement" in run["scores"] for run in flows] == [True, False]
    assert [run["model"]["flow"]["training"]["seed"] for run in flows] == [run["seed"] for run in flows] == [1, 2]
    record = json.loads(workplace.record.read_text())
    assert (record["seeds"], record["encoder"], plain[0]["scores"]["pairs"]) == ([1, 2], "base", 4)
    lines = printed.splitlines()
    assert [line.split()[0] for line in lines if " STS-B " in line and " 80.00 " in f"{line} "] == ["avg", "flow-train"]
    assert "80.00 ± 0.00 (median 80.00, n = 2)" in printed


def test_sts_12_is_scored_set_by_set_and_learned_from(workplace):
    senteval = f"--senteval_dir={workplace.root / 'SentEval'}"
    tasks, printed = workplace.reproduce("--tasks=sts12", "--rows=avg,flow-target", senteval)
    folder = workplace.out / "data" / "STS-12"
    assert {(call["task_name"], call["data_dir"]) for call in workplace.calls()} == {("STS-12", str(folder))}
    lines = (folder / "full.txt").read_text().splitlines()
    assert (lines[0], len(lines)) == ("MSRpar Boat 0.\tBoat 0.", 20)
    (run,) = tasks["sts12"]["flow-target"]
    scores = run["scores"]
    assert (scores["title"], scores["pairs"], scores["spearman"]["wmean"]) == ("STS-12", 20, pytest.approx(0.8))
    assert scores["subsets"]["MSRvid"]["pairs"] == 4
    assert scores["subsets"]["MSRvid"]["pearson"] == pytest.approx(np.corrcoef(COSINES, GOLD)[0, 1])
    assert "Spearman wmean" in printed


def test_several_tasks_share_the_flow_that_is_learned_on_nli(workplace):
    tasks, _ = workplace.reproduce("--tasks=stsb,qnli", "--rows=flow-nli", "--seeds=4,")
    calls = workplace.calls()
    learned = "base_4_ALLNLI_avg-last-2_flow"
    scored = [f"base_4_{task}_avg-last-2_flow_nli" for task in ("STS-B", "QNLI-Regression")]
    assert [call["exp_name"] for call in calls] == [learned, *scored]
    assert [call["init_checkpoint"] for call in calls] == [None, *[str(workplace.out / learned)] * 2]
    (run,) = tasks["qnli"]["flow-nli"]
    assert (run["scores"]["metric"], run["scores"]["split"], run["scores"]["auc"]) == ("auc", "dev", {"all": 1.0})


def test_a_finished_stage_is_done_again_only_by_overwrite(workplace):
    def flows():
        return {name for name in workplace.names() if name.endswith("_flow")}

    for seeds, made in (("1", {1}), ("2", {2}), ("2,1", set())):
        workplace.reproduce("--rows=avg,flow-target", f"--seeds={seeds}")
        assert flows() == {f"base_{seed}_STS-B_avg-last-2_flow" for seed in made}
    # An interrupted --overwrite goes on with every seed.
    workplace.failing = "base_1_STS-B_avg-last-2_flow"
    workplace.refused("--rows=flow-target", "--seeds=2", "--overwrite")
    workplace.failing = None
    workplace.calls()
    workplace.reproduce("--rows=avg,flow-target", "--seeds=2")
    assert flows() == {f"base_{seed}_STS-B_avg-last-2_flow" for seed in (1, 2)}


def test_with_nli_every_seed_has_an_encoder_of_its_own(workplace):
    workplace.reproduce("--rows=avg", "--seeds=3,5", "--nli")
    assert workplace.names() == ["nli_base_3", "nli_base_3_STS-B_avg", "nli_base_5", "nli_base_5_STS-B_avg"]


def test_a_failed_stage_or_other_predictions_leave_no_results(workplace):
    workplace.failing = "base_1_STS-B_avg"
    assert workplace.refused("--rows=avg") == "something failed"
    workplace.failing, workplace.cosines["STS-B"] = None, [0.5]
    assert "found 1 predictions, expected 4" in workplace.refused("--rows=avg")
    assert not workplace.record.exists()


def test_a_slip_is_one_line(workplace):
    for argument, part in {
        "--rows=flow": "--rows",
        "--tasks=sts12": "--senteval_dir: missing",
        "--tasks=qqp": "--tasks",
        "--tasks=": "--tasks",
        "--tasks=sickr": "SICK-R",
        "--out=/proc/none": "--out=/proc/none",
        "--bert_premodels=x": "--bert_premodels",
        "--bert_hub=": "--bert_hub",
    }.items():
        assert part in workplace.refused(argument)


def test_results_of_other_options_are_not_lost(workplace):
    workplace.reproduce("--rows=avg,flow-target", "--seeds=2")
    before = workplace.record.read_bytes()
    rows = "--rows=avg,flow-target"
    for arguments in (
        ("--rows=avg", "--seeds=2"),
        (rows, "--seeds=1"),
        (rows, "--seeds=2", "--nli"),
        (rows, "--seeds=2", "--tasks=qnli"),
        (rows, "--seeds=2", "--bert_hub=large"),
    ):
        line = workplace.refused(*arguments)
        assert line.startswith("--out=") and "--overwrite" in line
    assert workplace.record.read_bytes() == before
    workplace.record.write_text("mine")
    assert f"{workplace.record}: " in workplace.refused("--rows=avg")
    assert workplace.record.read_text() == "mine"
    tasks, _ = workplace.reproduce("--rows=avg", "--overwrite")
    assert set(tasks["stsb"]) == {"avg"}
