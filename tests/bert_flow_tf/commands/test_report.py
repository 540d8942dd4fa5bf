"""`bert-flow report` on what the other commands wrote, and its page in a browser."""

import json
import re
import shutil
import zlib

import pytest

from tests.bert_flow_tf.markup import Page
from tests.bert_flow_tf.results.written import write_all
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
    assert len(page.all("img")) == 6


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


@pytest.fixture
def page(results, tmp_path):
    """The file of a report's page, whose title is markup."""
    succeeds("report", "--runs", results, "--out", tmp_path / "out", "--title", "<script>alert(1)</script>")
    return tmp_path / "out" / "report.html"


def test_the_page_opens_in_a_browser_with_its_tables_and_plots_and_loads_nothing(browser, page):
    browser.open(page.as_uri())
    read, written = Page(browser.run("document.documentElement.outerHTML")), Page(page.read_text())
    # The page as the browser reads it is the page as it is written: nothing was moved out of a table or left open.
    assert (read.tags, read.rows) == (written.tags, written.rows)
    assert not read.all("script")
    # The browser says what the page's policy kept it from loading.
    assert browser.log == []
    # A drawing that is broken or not allowed has no width.
    widths = browser.run("[...document.images].map(one => one.naturalWidth)")
    assert len(widths) == len(written.all("img")) == 6 and min(widths) > 100


@pytest.mark.parametrize(("width", "is_stacked"), [(390, True), (1280, False)])
def test_on_a_phone_rows_are_stacked_and_nothing_is_cut(browser, page, width, is_stacked):
    browser.open(page.as_uri(), width=width)
    boxes = "[...document.querySelectorAll('h1, h2, p, caption, td, th[scope=row], figure, .panels img')]"
    # A desktop's table may be wider than the page and scroll in its own region; the page never does.
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run(f"Math.max(...{boxes}.map(one => one.getBoundingClientRect().right))") <= width or not is_stacked
    row = browser.run("document.querySelector('tbody tr').getBoundingClientRect().height")
    labels = browser.run("getComputedStyle(document.querySelector('td'), '::before').content")
    assert (labels != "none", row > 100) == (is_stacked, is_stacked)


def test_axe_finds_no_fault_in_light_or_dark_on_a_phone_or_a_desktop(axe_faults, page):
    assert axe_faults(page.as_uri()) == []


def test_on_paper_nothing_is_cut_folded_or_dark(browser, tmp_path):
    # Results of every kind, whose tables are wider than the paper unless their cells are of several lines.
    succeeds("report", "--runs", write_all(tmp_path / "results"), "--out", tmp_path / "out")
    page = tmp_path / "out" / "report.html"
    # A4 without its margins, in pixels of 1/96 inch.
    paper = round((210 - 2 * 12) / 25.4 * 96)
    browser.open(page.as_uri(), width=paper, dark=True, medium="print")
    boxes = "[...document.querySelectorAll('h1, p, table, td, th, img, dd')].map(one => one.getBoundingClientRect())"
    assert browser.run(f"Math.max(...{boxes}.map(one => one.right))") <= paper
    # What is folded on a screen is not on paper, and no row is torn between two pages.
    assert browser.run("[...document.querySelectorAll('dd')].map(one => one.checkVisibility())").count(False) == 0
    assert browser.run("getComputedStyle(document.querySelector('tbody tr')).breakInside") == "avoid"
    pdf = browser.pdf()
    # The boxes' corners, in points.
    assert set(re.findall(rb"/MediaBox \[(.+?)\]", pdf)) == {b"0 0 594.95996 841.91998"}
    assert 2 <= len(re.findall(rb"/Type /Page\b", pdf)) <= 9
    drawn = b"".join(_inflated(one) for one in re.findall(rb"stream\r?\n(.+?)\r?\n?endstream", pdf, re.DOTALL))
    colours = set(re.findall(rb"([.\d]+ [.\d]+ [.\d]+) rg\b", drawn))
    light, dark = _fill("#1c1e21"), _fill("#e4e7ea")
    assert light in colours and dark not in colours


def _inflated(stream):
    """A stream of a PDF; nothing of one that is not compressed as text is."""
    try:
        return zlib.decompress(stream)
    except zlib.error:
        return b""


def _fill(colour):
    """The colour `#rrggbb` as a PDF has it."""
    return " ".join(f"{int(colour[i : i + 2], 16) / 255:.4f}".strip("0") for i in (1, 3, 5)).encode()
