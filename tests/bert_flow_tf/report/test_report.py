"""A report as files: the page loads and runs nothing, says what the Markdown says, and is the same bytes each time."""

import base64
import json
import re

import pytest
from hypothesis import given, settings

from bert_flow_tf.report.page import html_page, markdown_page, write_report
from bert_flow_tf.report.sections import Section, Terms
from bert_flow_tf.results.collect import analysis_plots
from tests.bert_flow_tf.markup import ANY_TEXT, Page, markdown_as_html


def written(out, report, plots):
    write_report(out, report, plots)
    return {path.name: path.read_text(encoding="utf-8") for path in out.iterdir()}


@pytest.fixture(scope="module")
def plots(sources):
    return analysis_plots(sources) | {"lexical-1": b"<svg><script>alert(1)</script></svg>"}


@pytest.fixture(scope="module")
def files(report, plots, tmp_path_factory):
    """The text of a report's files by name."""
    return written(tmp_path_factory.mktemp("report") / "out", report, plots)


def test_the_same_results_give_the_same_files(report, plots, files, tmp_path):
    assert set(files) == {"report.html", "report.md", "results.json"}
    assert written(tmp_path / "again", report, plots) == files
    assert json.loads(files["results.json"]) == report


def test_page_and_markdown_hold_the_same_tables(files):
    page, markdown = Page(files["report.html"]), Page(markdown_as_html(files["report.md"]))
    assert len(page.all("table")) == len(markdown.all("table")) == 9
    # A note stands in brackets in Markdown, and small on the page.
    without_notes = [[text.split(" (")[0] for text in row] for row in markdown.rows]
    assert len(page.rows) == len(without_notes)
    for row, other in zip(page.rows, without_notes, strict=True):
        assert all(text.startswith(start) for text, start in zip(row, other, strict=True))


def _numbers(values):
    """Every number in nested dicts and lists; of the pairs that a plot draws, the ends alone: among all, any is one."""
    if isinstance(values, dict | list):
        for key, value in values.items() if isinstance(values, dict) else enumerate(values):
            if isinstance(value, list) and key in ("similarities", "gold") and isinstance(value[0], float):
                yield from (min(value), max(value), len(value))
            elif key not in ("figures", "alternatives"):
                yield from _numbers(value)
    elif isinstance(values, int | float):
        yield values


def test_every_number_on_the_page_is_one_of_the_json(files):
    """Of the tables' figures, and of what is said of the plots that are drawn here."""
    results = json.loads(files["results.json"])
    known = [*_numbers(results)]
    written = re.findall(r'<td[^>]*class="figure[^>]*>(.*?)</td>', files["report.html"])
    drawn = results["alternatives"].keys()
    written += [results[words][name] for words in ("figures", "alternatives") for name in drawn]
    shown = [number for text in written for number in _NUMBER.findall(_TAGS.sub(" ", text).replace("−", "-"))]
    assert len(shown) > 100
    for text in shown:
        value, digits = float(text.replace(",", "")), len(text.partition(".")[2])
        assert any(abs(value - number) <= 0.5000001 * 10**-digits for number in known), text


# Not those in words such as STS-12.
_TAGS, _NUMBER = re.compile(r"<[^>]+>"), re.compile(r"(?<![\w.-])[+-]?\d[\d,]*(?:\.\d+)?(?![\w.])")


def test_plots_are_images_within_the_page_with_their_captions(report, plots, files):
    images = Page(files["report.html"]).all("img")
    shown = {name: report["alternatives"].get(name, caption) for name, caption in report["figures"].items()}
    assert sorted(image["alt"] for image in images) == sorted(shown.values())
    page = Page(files["report.html"])
    assert all("".join(caption.split()) in page.text for caption in report["figures"].values())
    (image,) = [image for image in images if image["alt"] == report["figures"]["lexical-1"]]
    kind, _, data = image["src"].partition(",")
    assert (kind, base64.b64decode(data)) == ("data:image/svg+xml;base64", plots["lexical-1"])


def test_the_page_loads_and_runs_nothing(files):
    page = Page(files["report.html"])
    assert not {"script", "link", "iframe", "object", "embed", "base", "svg"} & {tag for tag, _ in page.tags}
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes), tag
        assert attributes.get("src", "data:").startswith("data:")
        assert attributes.get("href", "#").startswith("#")
    assert "url(" not in files["report.html"] and "@import" not in files["report.html"]
    (policy,) = [one["content"] for one in page.all("meta") if "http-equiv" in one]
    assert policy.startswith("default-src 'none'")


def test_the_page_can_be_walked_by_its_headings_and_labels(files):
    page = Page(files["report.html"])
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    named = {attributes["href"][1:] for attributes in page.all("a")}
    assert len(named) == 10
    named |= {attributes["aria-labelledby"] for _, attributes in page.tags if "aria-labelledby" in attributes}
    assert named <= set(ids)
    assert {attributes.get("scope") for attributes in page.all("th")} == {"col", "row"}
    assert page.all("html") == [{"lang": "en"}]


def _luminance(colour):
    """WCAG 2.2's relative luminance of `#rrggbb`."""
    shares = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_has_contrast_in_the_light_and_in_the_dark(files):
    palettes = [dict(re.findall(r"--(\w+): (#\w{6})", one)) for one in files["report.html"].split("@media", 1)]
    palettes[1] = dict(re.findall(r"--(\w+): (#\w{6})", files["report.html"].split("prefers-color-scheme: dark")[1]))
    for palette in palettes:
        assert set(palette) == {"ink", "muted", "paper", "line", "stripe", "accent", "rise", "fall"}
        for text in ("ink", "muted", "accent", "rise", "fall"):
            for ground in ("paper", "stripe"):
                light, dark = sorted((_luminance(palette[text]), _luminance(palette[ground])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)


@settings(derandomize=True, max_examples=200)
@given(ANY_TEXT)
def test_text_never_becomes_markup(text):
    """Titles, paragraphs, captions and terms; tables have a test of their own."""

    def pages(words):
        terms = [Terms(words, words, [(words, words)])]
        part = Section("s", words, [words], plots=["p"], panels=["q"], terms=terms)
        captions = {"p": words, "q": words}
        page = html_page(words, [words], [part], {"p": b"<svg/>", "q": b"<svg/>"}, captions, {"q": words})
        return Page(page), Page(markdown_as_html(markdown_page(words, [words], [part])))

    for page, harmless in zip(pages(f"§{text}"), pages("§"), strict=True):
        assert [tag for tag, _ in page.tags] == [tag for tag, _ in harmless.tags]
        assert page.text == harmless.text.replace("§", "".join(f"§{text}".split()))
