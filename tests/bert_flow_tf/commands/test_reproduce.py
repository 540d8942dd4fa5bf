"""Rows over seeds, with a stand-in that trains and scores."""

import json
import re
import types

import msgspec
import numpy as np
import pytest

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.encoder.handles import HUB_HANDLES
from bert_flow_tf.original import recipe as recipes
from bert_flow_tf.original.folder import write_result
from bert_flow_tf.tasks.scores import ScoredRun, Scores
from bert_flow_tf.tasks.senteval import SUBSETS
from bert_flow_tf.tasks.tasks import task_key
from bert_flow_tf.training.run_folder import FinishedRun
from tests.bert_flow_tf import records
from tests.bert_flow_tf.original.written import task_scores
from tests.bert_flow_tf.small_runs import write_tsv
from tests.refusals import bert_flow, refusal, succeeds

COSINES, GOLD = [0.1, 0.2, 0.3, 0.4], [1, 2, 4, 3]  # Their Spearman correlation is .8.


class Workplace:
    """A folder with three tasks of four pairs, for stand-ins of runs.

    Args:
      root: folder to work in.
      monkeypatch: the fixture, which puts the stand-ins in place.
    """

    def __init__(self, root, monkeypatch):
        self.root = root
        self.glue = root / "glue"
        for name in ("STS-B", "MNLI", "SNLI"):
            (self.glue / name).mkdir(parents=True)
        rows = [
            ["-"] * 7 + pair for pair in (["sentence1", "sentence2"], *([s, s] for s in "abcd"))
        ]
        write_tsv(self.glue / "STS-B" / "test.tsv", rows)
        gold = [["-"] * 4 + [str(gold), s, s] for gold, s in zip(GOLD, "abcd", strict=True)]
        write_tsv(self.glue / "STS-B" / "sts-test.csv", gold)
        self.cosines = {"STS-B": COSINES, "QNLI-Regression": COSINES, "STS-12": COSINES * 5}
        self.out = root / "out"
        self.record = self.out / "reproduction.json"
        boats = [[f"Boat {i}."] * 2 for i in range(len(GOLD))]
        labels = ["label", *["not_entailment", "entailment"] * 2]
        qnli = [
            ["-", *pair, label]
            for pair, label in zip([["question", "sentence"], *boats], labels, strict=True)
        ]
        write_tsv(self.glue / "QNLI-Regression" / "dev.tsv", qnli)
        folder = root / "SentEval" / "STS" / "STS12-en-test"
        for name in SUBSETS["sts12"]:
            write_tsv(folder / f"STS.input.{name}.txt", [[f"{name} {a}", b] for a, b in boats])
            write_tsv(folder / f"STS.gs.{name}.txt", [[str(gold)] for gold in GOLD])
        self.failing = None
        self._calls = []
        monkeypatch.setattr(recipes, "train_and_score", self.leave_results)
        self.encoder = "a" * 64
        monkeypatch.setattr(recipes.Recipe, "encoder_fingerprint", lambda recipe: self.encoder)
        # Among the objects of a whole test run a collection takes a second, and there is one for
        # each stage.
        monkeypatch.setattr(recipes, "gc", types.SimpleNamespace(collect=lambda: None))

    def leave_results(self, settings):
        run_dir, trains = settings.output_dir, settings.training.do_train
        if trains and (run_dir / "train_results.json").exists():
            raise FinishedRun(f"{run_dir}: found a finished run")
        parts = (
            settings.data,
            settings.model,
            settings.losses,
            settings.training,
            settings.scoring,
            settings,
        )
        self._calls.append({name: value for part in parts for name, value in vars(part).items()})
        if settings.exp_name == self.failing:
            raise UserError("something failed")
        run_dir.mkdir(parents=True, exist_ok=True)
        if trains:
            self.leave_run(run_dir)
        else:
            cosines, given = self.cosines[settings.data.task_name], settings.model
            handle = HUB_HANDLES.get(given.bert_hub, given.bert_hub)
            encoder = records.encoder("base" if given.bert_hub == "base" else "demo", handle=handle)
            model = records.model(encoder=encoder, pooling=given.sentence_embedding_type)
            if given.flow:
                model = msgspec.structs.replace(
                    model, flow=records.flow(seed=settings.training.seed)
                )
            # The predictions of a finished stage stay, as of `run_siamese`.
            if settings.prediction_path.exists():
                raise FinishedRun(f"{run_dir}: found all results")
            text = "".join(f"{cosine}\n" for cosine in cosines)
            tasks = {task_key(settings.data.task_name): task_scores()}
            run = ScoredRun(name=str(run_dir), model=model, tasks=tasks)
            record = Scores(made_by=records.MADE_BY, runs=[run])
            write_result(settings.prediction_path, text, record)

    def leave_run(self, run_dir):
        for name in ("config.json", "train_results.json", "eval_results.txt"):
            (run_dir / name).write_text(json.dumps({"encoder_trained": True}))

    def calls(self):
        """The flags of the runs since the last time."""
        calls, self._calls = self._calls, []
        return calls

    def names(self):
        """Return the names of the folders of `calls`."""
        return [call["exp_name"] for call in self.calls()]

    def arguments(self, *more):
        """Arguments of the command."""
        return "reproduce", "--bert_hub=base", f"--glue_dir={self.glue}", f"--out={self.out}", *more

    def refused(self, *more):
        """Return the line of a failed command."""
        outcome = bert_flow(*self.arguments(*more))
        return refusal(outcome.exit_code, outcome.stderr, after_log=True)

    def refused_after_output(self, *more):
        """Return the last line of a command that has written results."""
        outcome = bert_flow(*self.arguments(*more))
        assert str(self.record) in outcome.stderr
        return refusal(outcome.exit_code, outcome.stderr, after_log=True)

    def reproduce(self, *more):
        """Return the record's runs by task and row, and what is printed."""
        printed = succeeds(*self.arguments(*more))
        return self.runs(), printed

    def runs(self):
        """Return the record's runs by task and row."""
        tasks = {}
        for run in json.loads(self.record.read_text())["runs"]:
            ((task, scores),) = run["tasks"].items()
            tasks.setdefault(task, {}).setdefault(run["name"], []).append(run | {"scores": scores})
        return tasks


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    return Workplace(tmp_path, monkeypatch)


def test_what_is_trained_has_every_seed_and_the_rest_one(workplace):
    tasks, printed = workplace.reproduce("--rows=avg,flow-train", "--seeds=2")
    flow = [f"base_{seed}_STS-B_avg-last-2_flow_train" for seed in (1, 2)]
    assert workplace.names() == ["base_1_STS-B_avg", flow[0], flow[0], flow[1], flow[1]]
    plain, flows = tasks["stsb"]["avg"], tasks["stsb"]["flow-train"]
    assert [run["scores"]["by_metric"]["spearman"]["all"] for run in (*plain, *flows)] == [
        pytest.approx(0.8)
    ] * 3
    assert (
        [run["model"]["flow"]["training"]["seed"] for run in flows]
        == [run["seed"] for run in flows]
        == [1, 2]
    )
    assert plain[0]["settings"] == {"nli": False, "encoder": "a" * 64, "bert_hub": "base"}
    assert plain[0]["scores"]["pairs"] == 4
    lines = printed.splitlines()
    assert [line.split()[0] for line in lines if " STS-B " in line and " 80.00 " in f"{line} "] == [
        "avg",
        "flow-train",
    ]
    assert "80.00 ± 0.00 (median 80.00, n = 2)" in printed
    # After NLI every seed has an encoder of its own.
    workplace.reproduce("--rows=avg", "--seeds=3,5", "--nli", "--overwrite")
    assert workplace.names() == [
        "nli_base_3",
        "nli_base_3_STS-B_avg",
        "nli_base_5",
        "nli_base_5_STS-B_avg",
    ]


def test_sts_12_is_scored_set_by_set_and_learned_from(workplace):
    senteval = f"--senteval_dir={workplace.root / 'SentEval'}"
    tasks, _ = workplace.reproduce("--tasks=sts12", "--rows=avg,flow-target", senteval)
    folder = workplace.out / "data" / "STS-12"
    assert {(call["task_name"], call["data_dir"]) for call in workplace.calls()} == {
        ("STS-12", str(folder))
    }
    lines = (folder / "full.txt").read_text().splitlines()
    assert (lines[0], len(lines)) == ("MSRpar Boat 0.\tBoat 0.", 20)
    (run,) = tasks["sts12"]["flow-target"]
    scores = run["scores"]
    assert (scores["title"], scores["pairs"], scores["by_metric"]["spearman"]["wmean"]) == (
        "STS-12",
        20,
        pytest.approx(0.8),
    )
    assert scores["subsets"]["MSRvid"]["pairs"] == 4
    assert scores["subsets"]["MSRvid"]["by_metric"]["pearson"] == pytest.approx(
        np.corrcoef(COSINES, GOLD)[0, 1]
    )


def test_several_tasks_share_the_flow_that_is_learned_on_nli(workplace):
    tasks, _ = workplace.reproduce("--tasks=stsb,qnli", "--rows=flow-nli", "--seeds=4,")
    calls = workplace.calls()
    learned = "base_4_ALLNLI_avg-last-2_flow"
    scored = [f"base_4_{task}_avg-last-2_flow_nli" for task in ("STS-B", "QNLI-Regression")]
    assert [call["exp_name"] for call in calls] == [learned, *scored]
    assert [call["init_checkpoint"] for call in calls] == [
        None,
        *[str(workplace.out / learned)] * 2,
    ]
    (run,) = tasks["qnli"]["flow-nli"]
    assert (run["scores"]["metric"], run["scores"]["split"], run["scores"]["by_metric"]) == (
        "auc",
        "dev",
        {"auc": {"all": 0.75}},
    )


def test_a_failed_stage_or_a_slip_leaves_no_results(workplace):
    workplace.failing = "base_1234_STS-B_avg"
    assert workplace.refused("--rows=avg") == "something failed"
    workplace.failing, workplace.cosines["STS-B"] = None, [0.5]
    assert "found 1 predictions, expected 4" in workplace.refused("--rows=avg")
    for argument, part in {
        "--rows=flow": "--rows",
        "--tasks=sts12": "--senteval_dir: missing",
        "--tasks=qqp": "--tasks",
        "--tasks=sickr": "SICK-R",
        "--out=/proc/none": "--out=/proc/none",
        "--out=gs://bucket/exp": "--out: found an address",
        "--bert_premodels=x": "--bert_premodels",
        "--bert_hub=": "--bert_hub",
    }.items():
        assert part in workplace.refused(argument)
    assert not workplace.record.exists()


def test_tasks_with_data_are_scored_without_the_others(workplace):
    line = workplace.refused_after_output("--rows=avg", "--tasks=sickr,STS-B")
    assert line.startswith("not scored: ") and "SICK-R" in line
    assert workplace.runs().keys() == {"stsb"}


def test_results_of_other_options_are_not_lost(workplace):
    rows = "--rows=avg,flow-target"
    workplace.reproduce(rows, "--seeds=2")
    before = workplace.record.read_bytes()
    for other in (["--rows=avg"], ["--seeds=1"], ["--nli"], ["--tasks=qnli"], ["--bert_hub=large"]):
        line = workplace.refused(rows, "--seeds=2", *other)
        assert line.startswith("--out=") and "--overwrite" in line
    assert "found runs of flow-target, which" in workplace.refused("--rows=avg", "--seeds=2")
    assert "(nli is False, not True)" in workplace.refused(rows, "--seeds=2", "--nli")
    workplace.encoder = "b" * 64
    assert "encoder is 'aaa" in workplace.refused("--row=own", "--seeds=2")
    workplace.encoder = "a" * 64
    assert workplace.record.read_bytes() == before
    workplace.record.write_text("mine")
    assert f"{workplace.record}: " in workplace.refused("--rows=avg")
    assert workplace.record.read_text() == "mine"


def test_a_row_of_ones_own_is_added_over_seeds(workplace):
    workplace.reproduce("--rows=avg", "--seeds=2")
    workplace.calls()
    tasks, printed = workplace.reproduce(
        "--row=slow", "--seeds=2", "--flow_learning_rate", "1e-4", "--sentence_embedding_type=cls",
        "--cache_embeddings",
    )  # fmt: skip
    calls = workplace.calls()
    folders = [f"base_{seed}_STS-B_row_slow" for seed in (1, 2)]
    assert [call["exp_name"] for call in calls] == [folders[0], folders[0], folders[1], folders[1]]
    assert [call["do_train"] for call in calls] == [True, False, True, False]
    own = {
        "flow": 1,
        "flow_loss": 1,
        "flow_learning_rate": 1e-4,
        "sentence_embedding_type": "cls",
        "cache_embeddings": True,
        "use_full_for_training": 1,
    }
    assert all(call.items() >= own.items() for call in calls)
    # It stands beside the earlier rows.
    assert {name: len(runs) for name, runs in tasks["stsb"].items()} == {"avg": 1, "slow": 2}
    assert re.search(r"^slow .* 80\.00 ± 0\.00 \(median 80\.00, n = 2\)", printed, re.MULTILINE)
    workplace.reproduce("--row=short", "--flow=0", "--low_dim=4", "--seeds=3")
    (plain,) = workplace.calls()
    assert (plain["flow"], plain["low_dim"], plain["do_train"]) == (0, 4, False)
    workplace.reproduce("--row=labels", "--flow=0", "--num_examples=-1", "--seeds=7,")
    assert [call["num_examples"] for call in workplace.calls()] == [-1, -1]
    assert [run["seed"] for run in workplace.runs()["stsb"]["labels"]] == [7]


def test_a_flag_that_is_no_part_of_a_row_is_named(workplace):
    for arguments, part in (
        (["--row=a", "--seed=3"], "--row: found --seed, which reproduce sets itself"),
        (["--row=a", "--flow_lerning_rate=1"], "flow_lerning_rate"),
        (["--row=a", "--flow_model_config=none"], "--flow_model_config: "),
        (["--row=avg"], "--row: found 'avg'"),
        (["--row=a/b"], "--row: found 'a/b'"),
        (["--row=a", "word"], "found the argument word"),
        (["--rowz=avg"], "found --rowz=avg, expected no other arguments without --row"),
    ):
        assert part in workplace.refused(*arguments)
    assert not workplace.out.exists() or not [*workplace.out.glob("base_*")]


def test_the_default_seed_is_that_of_run_siamese(workplace):
    workplace.reproduce("--rows=avg")
    assert workplace.names() == ["base_1234_STS-B_avg"]
