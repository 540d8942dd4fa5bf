"""The recipe as a user runs it, every command a process of its own, on a small BERT and a few pairs."""

import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import stats

from bert_flow_tf.cli import main as bert_flow
from tests.bert_flow_tf.recipe.workplace import write_first_pairs

PAIRS = 40
ROWS = ("STS-B, avg", "STS-B, avg-last-2", "STS-B, avg + flow", "STS-B, avg-last-2 + flow")
FOLDERS = ("avg", "avg-last-2", "avg_flow", "avg-last-2_flow")


@pytest.fixture(scope="module")
def root(tmp_path_factory, documented_bert):
    """Folder with the first pairs of the sample data in `glue`, and a small BERT in BERT base's place."""
    root = tmp_path_factory.mktemp("recipe")
    write_first_pairs(root / "glue", PAIRS)
    shutil.copytree(documented_bert / "bert", root / "premodels" / "uncased_L-12_H-768_A-12")
    return root


@pytest.fixture(scope="module")
def environment(root, documented_bert):
    others = {"BERT_HUB", "BERT_NAME", "PREPROCESS_HUB", "INIT_CKPT", "TASK_NAME", "CACHED_DIR", "SKIP_NLI"}
    others.add("TF_CPP_MIN_LOG_LEVEL")
    return {name: value for name, value in os.environ.items() if name not in others} | {
        "BERT_FLOW_CACHE": str(documented_bert / "cache"),
        "BERT_PREMODELS": str(root / "premodels"),
        "GLUE_DIR": str(root / "glue"),
        "OUTPUT_PARENT_DIR": str(root / "exp"),
        "RANDOM_SEED": "5",
    }


def run_recipe(environment):
    done = subprocess.run(
        [sys.executable, "-m", "bert_flow_tf.recipe"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def printed(environment):
    """What the recipe prints."""
    return run_recipe(environment)


def table_of(printed):
    """{row: (Pearson, Spearman)} of the scored rows of the table, as printed."""
    scored = re.findall(r"^(\S.*?) {2,}(-?\d+\.\d\d) +(-?\d+\.\d\d) +(?:\d+\.\d|-)", printed, re.MULTILINE)
    return {row: (pearson, spearman) for row, pearson, spearman in scored}


def test_a_stage_is_a_line(printed):
    said = printed.split("\n\n")[0].splitlines()
    assert [line.partition(":")[0] for line in said[:3]] == ["encoder", "data", "output"]
    assert said[4] == "[2/8] STS-B, avg"
    assert len(said) == 3 + 8


def test_its_table_holds_the_scores_of_the_predictions_it_leaves(root, printed):
    gold = [float(line.split("\t")[4]) for line in (root / "glue/STS-B/sts-test.csv").read_text().splitlines()]
    expected = {}
    for row, folder in zip(ROWS, FOLDERS, strict=True):
        cosines = np.loadtxt(root / "exp" / f"nli_base_5_STS-B_{folder}" / "test_results.tsv")
        scores = (stats.pearsonr(cosines, gold).statistic, stats.spearmanr(cosines, gold).statistic)
        expected[row] = tuple(f"{100 * score:.2f}" for score in scores)
    assert table_of(printed) == expected
    assert len(set(expected.values())) == len(ROWS)
    assert (root / "exp/export/nli_base_5_STS-B_avg-last-2_flow/1/saved_model.pb").is_file()
    assert printed.endswith(f"SavedModel: {root}/exp/export/nli_base_5_STS-B_avg-last-2_flow\n")


def test_again_it_runs_nothing_and_prints_the_same_scores(environment, printed):
    again = run_recipe(environment)
    assert again.count("\n  done before\n") == 6
    assert table_of(again) == table_of(printed)


def test_reproduce_reports_the_rows_of_the_runs_that_are_there(root, environment, printed):
    flags = {"bert_premodels": root / "premodels", "glue_dir": root / "glue", "out": root / "exp", "seeds": "5,"}
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    outcome = CliRunner().invoke(bert_flow, ["reproduce", *arguments, "--nli", "--rows=last2avg,flow-target"])
    assert outcome.exit_code == 0, outcome.output
    assert outcome.output.count("\n  done before\n") == 3
    rows = json.loads((root / "exp" / "reproduction.json").read_text())["tasks"]["stsb"]
    for name, row in zip(("last2avg", "flow-target"), (ROWS[1], ROWS[3]), strict=True):
        assert f"{100 * rows[name][0]['scores']['spearman']['all']:.2f}" == table_of(printed)[row][1]
