"""`bert-flow report` on what the other commands wrote; its page as a browser reads it."""

import json
import shutil

import pytest

from tests.bert_flow_tf.markup import Page
from tests.refusals import files_below, refused, succeeds


@pytest.fixture(scope="module")
def written(sts_run, tiny_trio, small_glue_dir, tmp_path_factory):
    """A folder of small results: a run with its evaluation, its encoder's, calibrations and an analysis."""
    folder = tmp_path_factory.mktemp("written") / "results"
    folder.mkdir()
    shutil.copytree(sts_run, folder / "run")
    data = ("--glue_dir", small_glue_dir)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BERT_FLOW_CACHE", str(tiny_trio["cache_dir"]))
        from bert_flow_tf.api import BertFlow

        encoder = BertFlow.load(sts_run).source.bert_hub
        plain = ("--bert_hub", encoder, "--sentence_embedding_type", "avg-last-2", "--max_seq_length", 8)
        succeeds("evaluate", "--model", folder / "run", "--tasks", "stsb", *data)
        succeeds("evaluate", *plain, "--tasks", "stsb", *data, "--out", folder / "plain.json")
        methods = ("--methods", "none,sn", "--out", folder / "calibrations.json")
        succeeds("calibrate", *plain, "--task", "STS-B", *data, *methods)
        succeeds("analyze", "isotropy", "--model", folder / "run", *data, "--out", folder / "isotropy")
    return folder


@pytest.fixture
def results(written, tmp_path):
    """A copy of that folder, to change."""
    return shutil.copytree(written, tmp_path / "results")


def test_a_run_is_reported_beside_its_baseline(results, tmp_path):
    printed = succeeds("report", "--runs", results, "--out", tmp_path / "out", "--title", "Cats & dogs").splitlines()
    assert f"{tmp_path}/out/report.html" in printed[-1]
    evaluated = json.loads((results / "run" / "evaluation.json").read_text())["tasks"]["stsb"]["spearman"]["all"]
    text = (tmp_path / "out" / "report.html").read_text()
    assert "<title>Cats &amp; dogs</title>" in text
    (row,) = [row for row in Page(text).rows if row[1].startswith("avg-last-2 + flow")]
    assert f"{100 * evaluated:.2f}" in row


def test_several_paths_after_one_flag_and_flags_given_again_are_the_same(results, tmp_path):
    paths = [results / "plain.json", results / "isotropy"]
    succeeds("report", "--runs", *paths, "--out", tmp_path / "one")
    succeeds("report", "--out", tmp_path / "two", *(word for path in paths for word in ("--runs", path)))
    one, two = (list(files_below(tmp_path / name).values()) for name in ("one", "two"))
    assert len(one) == 1 and one == two


def test_overwrite_replaces_nothing_but_a_report(results, tmp_path):
    flags = ("report", "--runs", results / "plain.json", "--overwrite", "--out")
    succeeds(*flags, tmp_path / "out")
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    assert "thesis.txt" in refused(*flags, tmp_path / "out", unchanged=tmp_path)
    assert "report.html" in refused(*flags, results / "isotropy", unchanged=tmp_path)


def test_a_slip_in_a_file_is_one_line_and_leaves_nothing(results, tmp_path):
    (results / "plain.json").write_text("{")
    assert "plain.json: " in refused("report", "--runs", results, "--out", tmp_path / "out", unchanged=tmp_path)
