"""`bert-flow report` on what the other commands wrote, and its page in a browser."""

import html
import json
import re
import shutil
import subprocess

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


def test_a_run_is_reported_beside_its_baseline_with_calibrations_and_analyses(results, tmp_path):
    (results / "notes").mkdir()
    printed = succeeds("report", "--runs", results, "--out", tmp_path / "out").splitlines()
    assert printed == [
        f"calibration: {results}/calibrations.json",
        f"isotropy: {results}/isotropy",
        f"evaluation: {results}/plain.json",
        f"run: {results}/run",
        f"left out, no results: {results}/notes",
        f"report written: {tmp_path}/out/report.html, 2 scores",
    ]
    record = json.loads((tmp_path / "out" / "results.json").read_text())
    (flow,) = [row for row in record["scores"] if row["flow"]]
    evaluated = json.loads((results / "run" / "evaluation.json").read_text())["tasks"]["stsb"]["spearman"]["all"]
    assert flow["this_run"]["mean_x100"] == pytest.approx(100 * evaluated)
    assert (flow["baseline"]["name"], flow["paper"], flow["original"]) == ("plain.json", None, None)
    page = Page((tmp_path / "out" / "report.html").read_text())
    (row,) = [row for row in page.rows if row[0].startswith("avg-last-2 + flow")]
    assert row[5] == f"{100 * evaluated:.2f}"
    assert len(page.all("img")) == 2


def test_several_paths_after_one_flag_and_flags_given_again_are_the_same(results, tmp_path):
    paths = [results / "plain.json", results / "isotropy"]
    succeeds("report", "--runs", *paths, "--out", tmp_path / "one")
    succeeds("report", "--out", tmp_path / "two", *(word for path in paths for word in ("--runs", path)))
    one, two = (list(files_below(tmp_path / name).values()) for name in ("one", "two"))
    assert len(one) == 3 and one == two


def test_title_and_date_are_on_the_page(results, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1600000000")
    succeeds("report", "--runs", results / "plain.json", "--out", tmp_path / "out", "--title", "Cats & dogs")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<title>Cats &amp; dogs</title>" in page and "Made on 2020-09-13." in page
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "today")
    line = refused("report", "--runs", results / "plain.json", "--out", tmp_path / "other")
    assert line.startswith("SOURCE_DATE_EPOCH: found 'today'")


def test_overwrite_replaces_nothing_but_a_report(results, tmp_path):
    flags = ("report", "--runs", results / "plain.json", "--overwrite", "--out")
    succeeds(*flags, tmp_path / "out")
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    assert "holds thesis.txt beside a report" in refused(*flags, tmp_path / "out", unchanged=tmp_path)
    # Another folder with a results.json.
    assert "holds no results.json of a report" in refused(*flags, results / "isotropy", unchanged=tmp_path)


def test_a_slip_in_a_file_is_one_line_and_leaves_nothing(results, tmp_path):
    (results / "plain.json").write_text("{")
    line = refused("report", "--runs", results, "--out", tmp_path / "out", unchanged=tmp_path)
    assert "plain.json: found text that is not JSON" in line


def dumped(browser, page, folder):
    """What headless Chromium makes of a page: `Page`, and what it says on stderr."""
    command = [
        browser,
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--enable-logging=stderr", f"--user-data-dir={folder}", "--dump-dom", page.as_uri()),
    ]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert outcome.returncode == 0, outcome.stderr
    return Page(outcome.stdout), outcome.stderr


def test_the_page_opens_in_a_browser_with_its_tables_and_plots_and_loads_nothing(require, results, tmp_path):
    browser = require("chromium")
    succeeds("report", "--runs", results, "--out", tmp_path / "out", "--title", "<script>alert(1)</script>")
    path = tmp_path / "out" / "report.html"
    text = path.read_text()
    page, log = dumped(browser, path, tmp_path / "profile")
    # The page as the browser reads it is the page as it is written: nothing was moved out of a table or left open.
    assert (page.tags, page.rows) == (Page(text).tags, Page(text).rows)
    assert not page.all("script")
    # The browser logs what the page's policy kept it from loading.
    assert "CONSOLE" not in log, log
    # A drawing that is broken or not allowed has no width, as a script can tell that the page itself forbids.
    look = "onload = () => document.body.append(...[...document.images].map(one => `width ${one.naturalWidth} `))"
    allowed = text.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';")
    path.write_text(allowed.replace("</body>", f"<script>{look}</script></body>"))
    page, _ = dumped(browser, path, tmp_path / "profile")
    widths = re.findall(r"width(\d+)", page.text.rpartition("=>`")[2])
    assert [int(width) > 100 for width in widths] == [True] * 2


@pytest.mark.parametrize(("width", "is_stacked"), [(390, True), (1280, False)])
def test_on_a_phone_rows_are_stacked_and_nothing_is_cut(require, results, tmp_path, width, is_stacked):
    browser = require("chromium")
    succeeds("report", "--runs", results, "--out", tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text()
    # In a frame of that width, since no window of the browser is as narrow as a phone.
    look = (
        "onload = () => { const page = document.querySelector('iframe').contentDocument;"
        " const boxes = [...page.querySelectorAll('h1, h2, p, caption, td, th[scope=row], figure')];"
        " const right = Math.max(...boxes.map(one => one.getBoundingClientRect().right));"
        " const row = page.querySelector('tbody tr').getBoundingClientRect();"
        " document.body.append(`right ${Math.round(right)} page ${page.documentElement.scrollWidth}`"
        " + ` labels ${getComputedStyle(page.querySelector('td'), '::before').content}`"
        " + ` rows ${Math.round(row.height)}`) }"
    )
    host = tmp_path / "host.html"
    frame = f'<iframe style="width: {width}px; height: 800px; border: 0" srcdoc="{html.escape(text)}"></iframe>'
    host.write_text(f"<!DOCTYPE html><body>{frame}<script>{look}</script></body>")
    page, _ = dumped(browser, host, tmp_path / "profile")
    right, all_of_it, labels, height = re.findall(r"right(\d+)page(\d+)labels(.*?)rows(\d+)$", page.text)[0]
    # A desktop's table may be wider than the page and scroll in its own region; the page never does.
    assert int(all_of_it) <= width
    assert (int(right) <= width) or not is_stacked
    assert (labels != "none", int(height) > 100) == (is_stacked, is_stacked)
