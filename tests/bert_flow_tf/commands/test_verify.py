"""`bert-flow verify`: its table, its record and its exit status."""

import json
import pathlib
import re
import shutil
import sys
import warnings

import pytest

from bert_flow_tf.commands import verify
from tests.bert_flow_tf.original import written
from tests.golden import conftest
from tests.refusals import bert_flow, refused, succeeds

TESTS = """
import pytest

def test_near(deviation):
    deviation("flow, z", 1e-6, 2e-6)

def test_off(deviation):
    deviation("pooling, absolute", {off}, 2e-6)

@pytest.mark.SKIPPED(reason="no data here")
def test_data():
    pass
"""


@pytest.fixture
def golden(tmp_path, monkeypatch):
    """Function (deviation) that makes a repository with three golden tests."""

    def make(off):
        folder = tmp_path / "copy" / "tests" / "golden"
        folder.mkdir(parents=True)
        shutil.copy(pathlib.Path(conftest.__file__), folder)
        (folder / "test_it.py").write_text(TESTS.format(off=off).replace("SKIPPED", "skip"))
        monkeypatch.setattr(verify, "_ROOT", tmp_path / "copy")

    return make


@pytest.mark.parametrize(("off", "status", "mark"), [(1e-6, 0, "✓"), ("float('nan')", 1, "✗")])
def test_the_golden_tests_decide_the_status(golden, tmp_path, off, status, mark):
    golden(off)
    done = bert_flow("verify", "--out", tmp_path / "verification.json")
    assert done.exit_code == status
    lines = {line.split("  ")[0]: line for line in done.stdout.splitlines()}
    assert (
        " ✓ " in lines["flow"] and f" {mark} " in lines["pooling"] and "no data here" in done.stdout
    )
    record = json.loads((tmp_path / "verification.json").read_text())
    assert (record["evidence"], record["made_by"]["command"]) == (
        "tests/golden",
        "bert-flow verify",
    )
    # JSON has no number that is not finite.
    assert [one["found"] for one in record["deviations"]] == [1e-6, None if status else off]
    assert "test_near PASSED" in done.stderr and "test_data SKIPPED" in done.stderr
    paths = tmp_path / "verification.json", written.write(tmp_path / "demo.json", written.scores())
    printed = succeeds("report", "--runs", *paths)
    assert ["pooling", mark] in [line.split()[:2] for line in printed.splitlines()]
    assert printed == succeeds("report", *(word for path in paths for word in ("--runs", path)))


def test_golden_tests_that_are_not_run_decide_nothing(golden, tmp_path, monkeypatch):
    golden("1e-6")
    folder = tmp_path / "copy" / "tests" / "golden"
    (folder / "conftest.py").write_text("raise ValueError('broken')")
    assert f"{folder}: " in refused("verify", unchanged=tmp_path)
    monkeypatch.setattr(verify, "_ROOT", tmp_path)
    assert "expected a clone" in refused("verify", unchanged=tmp_path)


def test_a_report_names_what_it_leaves_out(tmp_path):
    written.write(tmp_path / "demo.json", written.scores())
    trained = written.write_run(tmp_path / "trained")
    done = bert_flow("report", "--runs", tmp_path)
    assert done.exit_code == 0 and " 73.08" in done.stdout
    assert f"left out: {trained}: trained, but not scored" in done.stderr
    assert f"--runs: {trained}: found no results (" in refused("report", "--runs", trained)
    assert "--runs: nowhere: no such file" in refused("report", "--runs", "nowhere")


def test_a_page_holds_everything_and_needs_no_network(tmp_path, monkeypatch):
    odd = "odd <b>&name"
    written.write(tmp_path / "runs" / "a" / "evaluation.json", written.scores(name=odd))
    written.write(tmp_path / "runs" / "isotropy.json", written.isotropies())
    trained = written.write_run(tmp_path / "runs" / "trained")
    page = tmp_path / "page.html"
    report = ("report", "--runs", tmp_path / "runs", "--html", page)
    with warnings.catch_warnings():
        # matplotlib warns of names that leave no room for the bars.
        warnings.simplefilter("error", UserWarning)
        printed = succeeds(*report)
    assert "73.08" in printed
    # Scores stand before the verdict, here and there.
    assert printed.index(" x100 ") < printed.index("same as the original?")
    text = page.read_text()
    places = ["the TF1 code", ">73.08", "later papers", "effective rank", "Same as the", "Left out"]
    assert sorted(places, key=text.index) == places
    assert f"{trained}: trained, but not scored" in text
    columns = re.findall('<button type="button">([^<]*)<', text)
    assert columns[3:7] == ["task", "metric", "x100", "TF1 code"]
    assert "odd &lt;b&gt;&amp;name" in text and odd not in text
    assert 'data-value="73.08' in text
    assert not re.search(r'src="(?!data:)|href=|https?://|@import|url\(', text)
    assert "the paper&#39;s score beside" in text and "needs BERT-base or BERT-large" in text
    assert re.findall('alt="([^"]+)"', text) == [
        "STS-B, test, 1,379 pairs: Spearman",
        "isotropy.json: variance by direction",
    ]
    assert "page.html: exists" in refused(*report, unchanged=tmp_path)
    succeeds(*report, "--overwrite", "--format", "latex")
    assert page.read_text() == text
    # Without matplotlib, the page says what is missing.
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    succeeds(*report, "--overwrite")
    assert "the extra plots is not installed" in page.read_text()
