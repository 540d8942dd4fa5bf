"""A report as a whole: the page, the Markdown and the data say the same, and nothing a file says becomes markup."""

import copy
import dataclasses
import functools
import html.parser
import json
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation import report
from bert_flow_tf.evaluation.report_cells import Cell, Section, Table
from bert_flow_tf.evaluation.report_markdown import escaped, markdown_page
from bert_flow_tf.evaluation.report_sources import find_sources
from bert_flow_tf.evaluation.report_tables import sections
from tests.bert_flow_tf.evaluation import result_files as files
from tests.bert_flow_tf.evaluation.test_report_analyses import write_isotropy

NASTY = "<script>alert('x')</script> | `a` & [b](c) *d*"


@pytest.fixture(scope="module")
def shared_results(tmp_path_factory):
    """A folder with a run, its baseline, and a file or folder of every other kind but a reproduction."""
    folder = tmp_path_factory.mktemp("shared") / "results"
    run = files.write_run(folder / "run", **files.FLOW)
    model = files.model_record(files.run_record(run / "model.ckpt-269"), config="config_l3_d3_w32")
    sts12 = files.scored_task("STS-12", {"wmean": 0.7, "mean": 0.69, "all": 0.72}, 3108)
    tasks = {"sts12": sts12, "stsb": files.scored_task("STS-B", 0.784632, 1379)}
    files.write_json(run / "evaluation.json", files.evaluation(tasks, model))
    files.write_json(folder / "demo.json", files.evaluation(tasks | {"stsb": files.scored_task("STS-B", 0.73, 1379)}))
    files.write_json(folder / "calibration.json", files.calibration())
    files.write_lexical(folder / "lexical")
    files.write_words(folder / "words")
    write_isotropy(folder / "isotropy")
    return folder


@pytest.fixture(scope="module")
def shared_report(shared_results, tmp_path_factory):
    """The three files of a report on these, as text."""
    return made(shared_results, tmp_path_factory.mktemp("report") / "out")


@pytest.fixture
def results(shared_results, tmp_path):
    """A copy of the results, to change."""
    return shutil.copytree(shared_results, tmp_path / "results")


def made(results, out, title="Results", date=None):
    """The three files of a report, as text."""
    sources, _ = find_sources([results])
    record = report.collect(sources, title, date)
    report.write_report(out, record, report.drawings(record, sources))
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "report.md", "results.json"]
    return [(out / name).read_text(encoding="utf-8") for name in ("report.html", "report.md", "results.json")]


def places(value, place=()):
    """The keys that lead to every value within a JSON value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*place, key)
        yield from places(child, (*place, key))


def changed(value, place, new):
    """A copy of a JSON value with something else in one place; nothing at all for `...`."""
    copied = copy.deepcopy(value)
    parent = functools.reduce(lambda inner, key: inner[key], place[:-1], copied)
    if new is ...:
        del parent[place[-1]]
    else:
        parent[place[-1]] = new
    return copied


@settings(derandomize=True, max_examples=150, deadline=None)
@given(data=st.data())
def test_any_slip_in_any_file_is_one_line_or_does_not_matter(shared_results, data):
    files_of = [path for path in shared_results.rglob("*.json") if "report" not in path.parts]
    path = data.draw(st.sampled_from(sorted(files_of)))
    text = path.read_text(encoding="utf-8")
    place = data.draw(st.sampled_from(list(places(json.loads(text)))))
    new = data.draw(st.sampled_from([None, 3, -1e9, 0.5, True, "x", [], {}, ["x"], [{}], {"a": 1}, ...]))
    try:
        files.write_json(path, changed(json.loads(text), place, new))
        record = report.collect(find_sources([shared_results])[0], "Results")
        json.dumps([record, *map(dataclasses.asdict, sections(record))], allow_nan=False, default=sorted)
    except UserError as error:
        assert "\n" not in str(error)
    finally:
        path.write_text(text, encoding="utf-8")


class Page(html.parser.HTMLParser):
    """What a page holds: its tags with their attributes, and the cells of its tables as text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.rows, self._in_cell = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag):
        self._in_cell = self._in_cell and tag not in ("td", "th")

    def handle_data(self, data):
        if self._in_cell:
            self.rows[-1][-1] += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def test_a_run_stands_beside_its_baseline_and_the_tf1_code(shared_report):
    page, markdown, data = shared_report
    rows = [row for row in Page(page).rows if row[0].startswith("cls + flow") and row[1] == "STS-B"]
    (row,) = rows
    assert row[1:6] == ["STS-B", "test", "", "1,379", "78.46"]
    assert row[6:] == ["73.00", "+5.46", "", "", "78.46seed 1234", "0.00"]
    (line,) = [line for line in markdown.splitlines() if line.startswith("| cls + flow") and " STS-B " in line]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[5:] == ["78.46", "73.00", "+5.46", "", "", "78.46 (seed 1234)", "0.00"]
    (record,) = [one for one in json.loads(data)["scores"] if one["flow"] and one["task"] == "STS-B"]
    assert record["difference_from_baseline_x100"] == pytest.approx(5.4632)
    assert (record["paper"], record["difference_from_paper_x100"]) == (None, None)
    assert record["original"]["values_x100"] == [pytest.approx(78.4632)]


def test_the_protocols_of_a_task_stand_apart(shared_report):
    page, _, _ = shared_report
    rows = [row for row in Page(page).rows if row[1:2] == ["STS-12"] and row[0].startswith("cls + flow")]
    assert [(row[3], row[5], row[6]) for row in rows] == [
        ("wmean", "70.00", "70.00"),
        ("mean", "69.00", "69.00"),
        ("all", "72.00", "72.00"),
    ]


def test_a_run_stands_below_its_baseline(shared_report):
    rows = [row for row in Page(shared_report[0]).rows if len(row) == 12 and row[2] == "test"]
    assert [(row[1], row[3], row[0].startswith("cls + flow")) for row in rows] == [
        (task, protocol, has_flow)
        for task, protocol in (("STS-12", "wmean"), ("STS-12", "mean"), ("STS-12", "all"), ("STS-B", ""))
        for has_flow in (False, True)
    ]


def test_every_kind_has_its_tables_and_plots(shared_report):
    page = Page(shared_report[0])
    # Scores, calibrations, lexical, words, isotropy, training; of these, a plot of each analysis and calibration.
    assert len(page.all("table")) == 6
    assert len(page.all("svg")) == 4
    assert [one["aria-label"].split(".")[0][:12] for one in page.all("svg")] == [
        "Calibrations",
        "Edit distanc",
        "Word embeddi",
        "Singular spe",
    ]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    references = [attributes["href"][1:] for _, attributes in page.tags if attributes.get("href", "").startswith("#")]
    references += [attributes["aria-labelledby"] for _, attributes in page.tags if "aria-labelledby" in attributes]
    assert set(references) <= set(ids)
    scopes = {attributes.get("scope") for attributes in page.all("th")}
    assert (scopes, page.all("html")) == ({"col", "row"}, [{"lang": "en"}])


def test_the_page_loads_and_runs_nothing(shared_report):
    text, _, _ = shared_report
    page = Page(text)
    assert not {"script", "link", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes), tag
        assert "src" not in attributes
        href = attributes.get("href", "#")
        assert href.startswith("#") or (tag == "image" and href.startswith("data:image/png;base64,"))
    assert "url(http" not in text and "@import" not in text
    (policy,) = [one["content"] for one in page.all("meta") if "http-equiv" in one]
    assert policy.startswith("default-src 'none'")


def test_where_it_comes_from_is_said(shared_report):
    page, markdown, data = shared_report
    for text in (page, markdown):
        assert files.DEMO in text and "b" * 64 in text
        assert "7fa8f6d" in text and "tensorflow 2.19.1" in text
    (run,) = [one for one in json.loads(data)["sources"] if one["kind"] == "run"]
    assert (run["pooling"], run["seeds"], run["flow"]["config"]) == (["cls"], [1234], "config_l3_d3_w32")
    assert run["versions"] == files.VERSIONS
    assert {one["task"] for one in run["data"]} == {"STS-B", "sts12", "stsb"}
    assert run["protocol"].startswith("cosine; wmean, mean and all")


def test_a_run_that_was_only_trained_has_no_scores_and_no_protocol(tmp_path):
    files.write_run(tmp_path / "run", **files.FLOW)
    page, _, data = made(tmp_path / "run", tmp_path / "out")
    assert (json.loads(data)["scores"], json.loads(data)["sources"][0]["protocol"]) == ([], None)
    assert len(Page(page).all("table")) == 1


def test_the_same_results_give_the_same_bytes(results, tmp_path):
    assert made(results, tmp_path / "one") == made(results, tmp_path / "two")
    assert "Made on 2020-09-13" in made(results, tmp_path / "three", date=report.date_of_epoch("1600000000"))[0]
    assert report.date_of_epoch(None) is None
    with pytest.raises(UserError, match="SOURCE_DATE_EPOCH: found 'today'"):
        report.date_of_epoch("today")


def test_what_a_file_or_a_title_says_is_never_markup(results, tmp_path):
    tasks = {"tfds:" + NASTY: files.scored_task(NASTY, 0.5, 10, split=NASTY)}
    model = files.model_record(pooling=NASTY, handle=NASTY)
    versions = {NASTY: NASTY}
    files.write_json(results / "nasty.json", files.evaluation(tasks, model, versions=versions, similarity=NASTY))
    svg = files.SVG.replace("<defs>", "<script>alert(1)</script><defs>")
    files.write_lexical(results / "lexical", task=NASTY, split=NASTY, svg=svg)
    page, markdown, data = made(results, tmp_path / "out", title=NASTY)
    assert "<script" not in page and "alert(1)" not in page
    assert "&lt;script&gt;" in page
    assert not Page(page).all("script")
    assert "<script" not in markdown
    lines = [line for line in markdown.splitlines() if line.startswith("|") and "alert" in line]
    header = next(line for line in markdown.splitlines() if line.startswith("| Embedding"))
    assert lines and all(line.replace("\\|", "").count("|") == header.count("|") for line in lines[:1])
    assert json.loads(data)["title"] == NASTY


def test_markdown_keeps_every_table_whole():
    cells = [[Cell("a|b\nc", "d`e"), Cell("1.00")]]
    text = markdown_page("T", [], [Section("s", "S", tables=[Table("C <b>", ("x", "y"), cells)])])
    assert text == "# T\n\n## S\n\n**C &lt;b&gt;**\n\n| x | y |\n| :-- | --: |\n| a\\|b c (d\\`e) | 1.00 |\n"
    assert escaped("&lt;") == "&amp;lt;"


def test_several_seeds_have_a_table_and_a_plot(tmp_path):
    from tests.bert_flow_tf.evaluation.test_report_rows import reproduction

    record = reproduction({"last2avg": [0.8154], "flow-target": [0.79, 0.80, 0.84]})
    files.write_json(tmp_path / "out" / "reproduction.json", record)
    page, _, data = made(tmp_path / "out", tmp_path / "report")
    assert list(json.loads(data)["figures"]) == ["seeds-1"]
    rows = Page(page).rows
    (row,) = [row for row in rows if row[3:4] == ["1, 2, 3"]]
    assert row[4:10] == ["3", "81.00", "2.65", "80.00", "79.00", "84.00"]
    (row,) = [row for row in rows if row[0].startswith("avg-last-2 + flow") and row[2] == "test"]
    assert row[5:8] == ["81.00 ± 2.65median 80.00, n = 3", "81.54", "−0.54"]


def test_a_plot_that_is_missing_is_refused_and_leaves_nothing(results, tmp_path):
    (results / "words" / "words.svg").unlink()
    with pytest.raises(UserError, match=r"words\.svg: no such file, expected the plot"):
        made(results, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_task_of_several_sets_has_a_table_of_them(tmp_path):
    task = files.scored_task("STS-12", {"wmean": 0.71, "mean": 0.7, "all": 0.72}, 3108)
    task["subsets"] = {"MSRpar": {"pairs": 750, "spearman": 0.6543}, "MSRvid": {"pairs": 750, "spearman": 0.8}}
    files.write_json(tmp_path / "e.json", files.evaluation({"sts12": task}))
    page, _, data = made(tmp_path / "e.json", tmp_path / "report")
    assert [row["subsets"].get("MSRpar") for row in json.loads(data)["scores"]] == [pytest.approx(65.43), None, None]
    assert "STS-12 by its sets" in page and "65.43" in page
