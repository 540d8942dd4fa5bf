"""Rows over seeds, with a stand-in for the commands that train and score."""

import functools
import json
import sys

import pytest
from click.testing import CliRunner

from bert_flow_tf import recipe
from bert_flow_tf.cli import main
from tests.bert_flow_tf.test_recipe import Workplace


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    workplace = Workplace(tmp_path)
    stand_in = functools.partial(recipe.run, interpreter=(sys.executable, str(workplace.stand_in)))
    monkeypatch.setattr(recipe, "run", stand_in)
    return workplace


def reproduce(workplace, *arguments):
    flags = ["--bert_hub=base", f"--glue_dir={workplace.glue}", f"--out={workplace.root / 'out'}"]
    return CliRunner().invoke(main, ["reproduce", *flags, *arguments])


def runs(calls):
    return [values["exp_name"] for module, values in calls if module == "bert_flow_tf.run_siamese"]


def test_what_is_trained_is_trained_with_every_seed_and_the_rest_once(workplace):
    outcome = reproduce(workplace, "--rows=avg,flow-train", "--seeds=2")
    assert outcome.exit_code == 0, outcome.output
    flow = [f"base_{seed}_STS-B_avg-last-2_flow_train" for seed in (1, 2)]
    assert runs(workplace.calls()) == ["base_1_STS-B_avg", flow[0], flow[0], flow[1], flow[1]]
    record = json.loads((workplace.root / "out" / "reproduction.json").read_text())
    assert record["rows"]["avg"]["spearman"]["values"] == [0.765432]
    assert record["rows"]["flow-train"]["spearman"]["values"] == [0.765432] * 2
    assert record["rows"]["avg"]["paper"]["spearman_x100"] == 47.29
    assert (record["seeds"], record["task"], record["encoder"]) == ([1, 2], "STS-B", "base")
    lines = outcome.output.splitlines()
    assert [line.split() for line in lines if line.startswith(("avg ", "flow-train "))] == [
        ["avg", "76.54", "-", "76.54", "47.29"],
        ["flow-train", "76.54", "0.00", "76.54", "-"],
    ]


def test_with_nli_every_seed_has_an_encoder_of_its_own(workplace):
    outcome = reproduce(workplace, "--rows=avg", "--seeds=3,5", "--nli")
    assert outcome.exit_code == 0, outcome.output
    assert runs(workplace.calls()) == ["nli_base_3", "nli_base_3_STS-B_avg", "nli_base_5", "nli_base_5_STS-B_avg"]


def test_again_nothing_is_done_twice(workplace):
    assert reproduce(workplace, "--rows=flow-target", "--seeds=1").exit_code == 0
    workplace.calls()
    outcome = reproduce(workplace, "--rows=flow-target", "--seeds=2")
    assert outcome.exit_code == 0, outcome.output
    assert set(runs(workplace.calls())) == {"base_2_STS-B_avg-last-2_flow"}


def test_a_stage_that_fails_ends_with_its_status_and_no_results(workplace):
    workplace.fail_at("base_1_STS-B_avg")
    outcome = reproduce(workplace, "--rows=avg")
    assert outcome.exit_code == 7
    assert "error: the stage 'STS-B, avg' failed with exit status 7" in outcome.stderr
    assert not (workplace.root / "out" / "reproduction.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--rows=flow"], "--rows: found flow"),
        (["--seeds=none"], "--seeds: found 'none'"),
        (["--task=STS-12"], "--task: sts-12 has no gold scores for its test split"),
        (["--task=nothing"], "--task: unknown task 'nothing'"),
        (["--seeds=2,2"], "--seeds: found '2,2', expected different seeds"),
        (["--out=/proc/none"], "--out=/proc/none: /proc cannot be written to"),
        (["--bert_premodels=x"], "--bert_premodels: found it with --bert_hub"),
        (["--glue_dir=nowhere"], "--glue_dir=nowhere: no such folder"),
        (["--bert_hub="], "--bert_hub: missing"),
    ],
)
def test_a_slip_is_one_line(workplace, arguments, message):
    outcome = reproduce(workplace, *arguments)
    assert outcome.exit_code == 2
    assert outcome.stderr.startswith("error: ") and outcome.stderr.count("\n") == 1
    assert message in outcome.stderr


def test_results_of_other_rows_seeds_or_tasks_are_not_lost(workplace):
    assert reproduce(workplace, "--rows=avg,flow-target", "--seeds=2").exit_code == 0
    path = workplace.root / "out" / "reproduction.json"
    before = path.read_bytes()
    workplace.calls()
    for arguments, flag in (
        (("--rows=avg", "--seeds=2"), "--rows: "),
        (("--rows=avg,flow-target", "--seeds=1"), "--seeds: "),
        (("--rows=avg,flow-target", "--seeds=2", "--nli"), "--nli: "),
    ):
        outcome = reproduce(workplace, *arguments)
        assert outcome.exit_code == 2
        assert outcome.stderr.startswith(f"error: {flag}") and "would be lost" in outcome.stderr
    assert path.read_bytes() == before
    path.write_text("mine")
    assert "found no results of `reproduce`" in reproduce(workplace, "--rows=avg").stderr
    assert path.read_text() == "mine"
    assert reproduce(workplace, "--rows=avg", "--overwrite").exit_code == 0
    assert set(json.loads(path.read_text())["rows"]) == {"avg"}


def test_folder_that_is_called_like_the_papers_encoder_is_not_compared_with_it(workplace):
    encoder = workplace.root / "encoders" / "base"
    encoder.mkdir(parents=True)
    outcome = CliRunner().invoke(
        main,
        [
            "reproduce",
            f"--bert_hub={encoder}",
            f"--glue_dir={workplace.glue}",
            f"--out={workplace.root / 'out'}",
            "--rows=avg",
        ],
    )
    assert outcome.exit_code == 0, outcome.output
    record = json.loads((workplace.root / "out" / "reproduction.json").read_text())
    assert record["rows"]["avg"]["paper"] is None
