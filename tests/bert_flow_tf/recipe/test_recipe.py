"""The recipe on a small BERT and a few pairs."""

import json
import re

import numpy as np
import pytest
from scipy import stats

from bert_flow_tf.recipe.run import main
from tests.bert_flow_tf.recipe.workplace import printed_by, with_small_flow, write_first_pairs
from tests.refusals import succeeds

ROWS = ("STS-B, avg", "STS-B, avg-last-2", "STS-B, avg + flow", "STS-B, avg-last-2 + flow")
FOLDERS = ("avg", "avg-last-2", "avg_flow", "avg-last-2_flow")


@pytest.fixture(scope="module")
def root(tmp_path_factory, documented_bert):
    """A folder with the sample's first pairs and a small BERT."""
    root = tmp_path_factory.mktemp("recipe")
    write_first_pairs(root / "glue", 40)
    (root / "premodels").mkdir()
    (root / "premodels" / "uncased_L-12_H-768_A-12").symlink_to(documented_bert / "bert")
    with with_small_flow(root, BERT_FLOW_CACHE=documented_bert / "cache"):
        yield root


def table_of(printed):
    """{row: (Pearson, Spearman)} of the scored rows of the table, as printed."""
    scored = re.findall(r"^(\S.*?) {2,}(-?\d+\.\d\d) +(-?\d+\.\d\d) +[-+\d]", printed, re.MULTILINE)
    return {row: (pearson, spearman) for row, pearson, spearman in scored}


def test_its_table_holds_the_scores_of_its_predictions(root):
    environ = {"BERT_PREMODELS": str(root / "premodels"), "GLUE_DIR": str(root / "glue"), "RANDOM_SEED": "5"}
    environ |= {"OUTPUT_PARENT_DIR": str(root / "exp")}
    printed = printed_by(main, environ)
    said = printed.split("\n\n")[0].splitlines()
    assert [line.partition(":")[0] for line in said[:3]] == ["encoder", "data", "output"]
    # A stage is a line.
    assert said[4] == "[2/8] STS-B, avg" and len(said) == 3 + 8
    gold = np.loadtxt(root / "glue/STS-B/sts-test.csv", delimiter="\t", usecols=4, comments=None)
    expected = {}
    for row, folder in zip(ROWS, FOLDERS, strict=True):
        cosines = np.loadtxt(root / "exp" / f"nli_base_5_STS-B_{folder}" / "test_results.tsv")
        scores = (stats.pearsonr(cosines, gold).statistic, stats.spearmanr(cosines, gold).statistic)
        expected[row] = tuple(f"{100 * score:.2f}" for score in scores)
    assert table_of(printed) == expected
    assert len(set(expected.values())) == len(ROWS)
    assert (root / "exp/export/nli_base_5_STS-B_avg-last-2_flow/1/saved_model.pb").is_file()
    assert printed.endswith(f"SavedModel: {root}/exp/export/nli_base_5_STS-B_avg-last-2_flow\n")
    again = printed_by(main, environ)
    assert again.count("\n  done before\n") == 6 and table_of(again) == expected
    # `reproduce` reports the rows of the runs that are there.
    flags = {"bert_premodels": root / "premodels", "glue_dir": root / "glue", "out": root / "exp", "seeds": "5,"}
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    said = succeeds("reproduce", *arguments, "--nli", "--rows=last2avg,flow-target")
    assert said.count("\n  done before\n") == 3
    rows = json.loads((root / "exp" / "reproduction.json").read_text())["tasks"]["stsb"]
    for name, row in (("last2avg", ROWS[1]), ("flow-target", ROWS[3])):
        assert f"{100 * rows[name][0]['scores']['spearman']['all']:.2f}" == expected[row][1]
