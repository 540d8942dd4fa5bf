"""`bert-flow report` on the command line, and its page in a browser."""

import json
import re
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from bert_flow_tf.cli import main
from tests.bert_flow_tf.commands.reproductions import stand_in_workplace
from tests.bert_flow_tf.evaluation import result_files as files


def bert_flow_report(*arguments):
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def refused(*arguments):
    """The line that the command ends with; its status must be 2 and the line its only output."""
    outcome = bert_flow_report(*arguments)
    assert outcome.exit_code == 2, outcome.output
    assert outcome.stdout == ""
    assert outcome.stderr.startswith("error: ") and outcome.stderr.count("\n") == 1
    return outcome.stderr


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    files.write_json(folder / "a.json", files.evaluation())
    files.write_json(folder / "b.json", files.calibration())
    files.write_words(folder / "words")
    return folder


def kinds(out):
    return [source["kind"] for source in json.loads((out / "results.json").read_text())["sources"]]


def test_several_paths_after_one_flag_and_flags_given_again_are_the_same(results, tmp_path):
    paths = [results / "a.json", results / "b.json", results / "words"]
    out = tmp_path / "one"
    outcome = bert_flow_report("--runs", *paths, "--out", out)
    assert outcome.exit_code == 0, outcome.output
    assert f"report written: {out}/report.html, 1 scores" in outcome.stdout
    flags = [word for path in paths for word in ("--runs", path)]
    assert bert_flow_report("--out", tmp_path / "two", *flags).exit_code == 0
    assert kinds(out) == ["evaluation", "calibration", "words"]
    for name in ("report.html", "report.md", "results.json"):
        assert (out / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_folder_of_results_is_gone_through_and_what_is_left_out_is_said(results, tmp_path):
    (results / "notes").mkdir()
    outcome = bert_flow_report("--runs", results, "--out", tmp_path / "out")
    assert outcome.stdout.splitlines()[:4] == [
        f"evaluation: {results}/a.json",
        f"calibration: {results}/b.json",
        f"words: {results}/words",
        f"left out, no results: {results}/notes",
    ]


def test_title_and_date_are_on_the_page(results, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1600000000")
    outcome = bert_flow_report("--runs", results, "--out", tmp_path / "out", "--title", "Cats & dogs")
    assert outcome.exit_code == 0, outcome.output
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<title>Cats &amp; dogs</title>" in page and "Made on 2020-09-13." in page


def test_an_earlier_report_is_replaced_when_asked_to_and_nothing_else_is(results, tmp_path):
    out = tmp_path / "out"
    assert bert_flow_report("--runs", results, "--out", out).exit_code == 0
    assert f"--out={out}: exists, expected a new folder or --overwrite" in refused("--runs", results, "--out", out)
    assert bert_flow_report("--runs", results / "a.json", "--out", out, "--overwrite").exit_code == 0
    assert kinds(out) == ["evaluation"]
    (out / "thesis.txt").write_text("mine")
    assert "found thesis.txt beside a report" in refused("--runs", results, "--out", out, "--overwrite")
    (out / "thesis.txt").unlink()
    line = refused("--runs", results / "a.json", "--out", results, "--overwrite")
    assert "found a folder that holds no report" in line
    line = refused("--runs", results / "a.json", "--out", results / "words", "--overwrite")
    assert "found a folder that holds no report" in line
    assert (results / "words" / "words.svg").exists()
    assert "found a file" in refused("--runs", results, "--out", results / "a.json", "--overwrite")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "a.json: found text that is not JSON"),
        ('{"format_version": 2}', "a.json: found format_version 2, expected 1"),
        (json.dumps(files.evaluation()).replace("0.7884", "NaN"), "a.json: found NaN, expected finite numbers"),
        ("{}", "a.json: found other content, expected a run of run_siamese"),
    ],
)
def test_a_slip_in_a_file_is_one_line_and_leaves_nothing(results, tmp_path, text, message):
    (results / "a.json").write_text(text)
    assert message in refused("--runs", results / "a.json", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_slip_in_the_flags_is_one_line(results, tmp_path):
    assert "nowhere: no such file or folder" in refused("--runs", tmp_path / "nowhere", "--out", tmp_path / "out")
    assert "Missing option '--runs'" in refused("--out", tmp_path / "out")
    assert "Missing option '--out'" in refused("--runs", results)
    assert "found twice" in refused("--runs", results, results / "words", "--out", tmp_path / "out")


def test_what_reproduce_writes_is_a_row_of_seeds_without_the_papers_on_other_pairs(tmp_path, monkeypatch):
    workplace = stand_in_workplace(tmp_path, monkeypatch)
    flags = ["--bert_hub=base", f"--glue_dir={workplace.glue}", f"--out={tmp_path / 'rows'}"]
    outcome = CliRunner().invoke(main, ["reproduce", *flags, "--rows=last2avg,flow-target", "--seeds=2"])
    assert outcome.exit_code == 0, outcome.output
    assert bert_flow_report("--runs", tmp_path / "rows", "--out", tmp_path / "out").exit_code == 0
    plain, flow = json.loads((tmp_path / "out" / "results.json").read_text())["scores"]
    assert (plain["this_run"]["n"], flow["this_run"]["n"], flow["seeds"]) == (1, 2, [1, 2])
    assert flow["this_run"]["mean_x100"] == pytest.approx(80)
    assert flow["difference_from_baseline_x100"] == pytest.approx(0)
    # Four pairs are not the STS Benchmark that the paper scores.
    assert (flow["encoder"]["name"], flow["pairs"], flow["paper"]) == ("base", 4, None)


def test_help_holds_an_example_and_loads_nothing_heavy():
    code = (
        "import sys\nfrom bert_flow_tf.cli import main\n"
        "try:\n    main(['report', '--help'])\n"
        "except SystemExit:\n    print({'tensorflow', 'numpy', 'matplotlib', 'scipy'} & set(sys.modules))\n"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "bert-flow report --runs runs/stsb_flow" in outcome.stdout
    assert outcome.stdout.splitlines()[-1] == "set()"


def dumped(page, folder):
    """The document that headless Chromium makes of a page, as text; with what it says on stderr."""
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("no chromium on PATH: the page was not opened in a browser")
    command = [
        browser,
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--enable-logging=stderr", f"--user-data-dir={folder}", "--dump-dom", page.as_uri()),
    ]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout, outcome.stderr


def test_the_page_opens_in_a_browser_with_its_tables_and_plots_and_loads_nothing(results, tmp_path):
    files.write_lexical(results / "lexical")
    outcome = bert_flow_report("--runs", results, "--out", tmp_path / "out", "--title", "<script>alert(1)</script>")
    assert outcome.exit_code == 0, outcome.output
    document, log = dumped(tmp_path / "out" / "report.html", tmp_path / "profile")
    assert document.count("<table>") == 4
    assert len(re.findall(r"<svg[^>]* role=\"img\"", document)) == 3
    assert document.count("<figure>") == 3 and document.count("</figure>") == 3
    assert len(re.findall(r"<h2 id=", document)) == 5
    # As written, the page is what the browser makes of it: nothing was moved out of a table or left open.
    assert document.count("<tr>") == (tmp_path / "out" / "report.html").read_text().count("<tr>")
    assert "<script" not in document and "&lt;script&gt;alert(1)" in document
    assert not re.search(r"""(src|href)=["'](https?:)?//""", document)
    assert not re.search(r"url\(\s*['\"]?(https?:)?//", document)
    assert "CONSOLE" not in log, log
