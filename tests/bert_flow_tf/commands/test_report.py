"""`bert-flow report` on the results of other commands."""

import json
import shutil

from tests.bert_flow_tf.markup import Page
from tests.bert_flow_tf.results import written
from tests.refusals import files_below, refused, succeeds


def test_a_run_is_reported_beside_other_results(sts_run, small_glue_dir, tmp_path):
    results = written.write_all(tmp_path / "results")
    run = shutil.copytree(sts_run, results / "real")
    succeeds("evaluate", "--model", run, "--tasks", "stsb", "--glue_dir", small_glue_dir)
    printed = succeeds("report", "--runs", results, "--out", tmp_path / "out", "--title", "Cats & dogs").splitlines()
    assert f"{tmp_path}/out/report.html" in printed[-1]
    evaluated = json.loads((run / "evaluation.json").read_text())["tasks"]["stsb"]["by_metric"]["spearman"]["all"]
    text = (tmp_path / "out" / "report.html").read_text()
    assert "<title>Cats &amp; dogs</title>" in text
    row, *_ = [row for row in Page(text).rows if row[0] == str(run)]
    assert row[1].startswith("avg-last-2 + flow") and f"{100 * evaluated:.2f}" in row
    # Several paths after one flag and flags given again are the same.
    paths = [results / "demo.json", results / "isotropy"]
    succeeds("report", "--runs", *paths, "--out", tmp_path / "one")
    succeeds("report", "--out", tmp_path / "two", *(word for path in paths for word in ("--runs", path)))
    one, two = (list(files_below(tmp_path / name).values()) for name in ("one", "two"))
    assert len(one) == 1 and one == two
    # --overwrite replaces nothing but a report.
    flags = ("report", "--runs", results / "demo.json", "--overwrite", "--out", results / "isotropy")
    assert "report.html" in refused(*flags, unchanged=tmp_path)
