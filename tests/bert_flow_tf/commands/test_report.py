"""`bert-flow report` on the results of other commands."""

import json
import shutil

import pytest

from bert_flow_tf.api import BertFlow
from tests.bert_flow_tf.markup import Page
from tests.refusals import files_below, refused, succeeds


@pytest.fixture
def results(sts_run, cache, small_glue_dir, tmp_path):
    """A folder with a run, two evaluations, calibrations and an analysis."""
    folder = tmp_path / "results"
    run = shutil.copytree(sts_run, folder / "run")
    data = ("--glue_dir", small_glue_dir)
    encoder = BertFlow.load(sts_run).source.bert_hub
    plain = ("--bert_hub", encoder, "--pooling", "avg-last-2", "--max_seq_length", 8, *data)
    succeeds("evaluate", "--model", run, "--tasks", "stsb", *data)
    succeeds("evaluate", *plain, "--tasks", "stsb", "--out", folder / "plain.json")
    succeeds("calibrate", *plain, "--methods", "none,sn", "--out", folder / "calibrations.json")
    succeeds("analyze", "isotropy", "--model", run, *data, "--out", folder / "isotropy")
    return folder


def test_a_run_is_reported_beside_its_baseline(results, tmp_path):
    printed = succeeds("report", "--runs", results, "--out", tmp_path / "out", "--title", "Cats & dogs").splitlines()
    assert f"{tmp_path}/out/report.html" in printed[-1]
    evaluated = json.loads((results / "run" / "evaluation.json").read_text())["tasks"]["stsb"]["spearman"]["all"]
    text = (tmp_path / "out" / "report.html").read_text()
    assert "<title>Cats &amp; dogs</title>" in text
    (row,) = [row for row in Page(text).rows if row[1].startswith("avg-last-2 + flow")]
    assert f"{100 * evaluated:.2f}" in row
    # Several paths after one flag and flags given again are the same.
    paths = [results / "plain.json", results / "isotropy"]
    succeeds("report", "--runs", *paths, "--out", tmp_path / "one")
    succeeds("report", "--out", tmp_path / "two", *(word for path in paths for word in ("--runs", path)))
    one, two = (list(files_below(tmp_path / name).values()) for name in ("one", "two"))
    assert len(one) == 1 and one == two
    # --overwrite replaces nothing but a report.
    (tmp_path / "two" / "thesis.txt").write_text("mine")
    for folder, found in ((tmp_path / "two", "thesis.txt"), (results / "isotropy", "report.html")):
        flags = ("report", "--runs", results / "plain.json", "--overwrite", "--out", folder)
        assert found in refused(*flags, unchanged=tmp_path)
    (results / "plain.json").write_text("{")
    assert "plain.json: " in refused("report", "--runs", results, "--out", tmp_path / "new", unchanged=tmp_path)
