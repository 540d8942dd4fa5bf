"""Drawings on one page: nothing loaded, nothing run, no name twice."""

import pathlib
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.report_svg import inline_svg, read_svg
from tests.bert_flow_tf.evaluation import result_files as files


def svg(inside, attributes='width="9pt" height="6pt" viewBox="0 0 9 6"'):
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f"<svg {names} {attributes}>{inside}</svg>"


def test_names_and_what_refers_to_them_get_the_prefix():
    text = inline_svg(
        svg(
            '<defs><clipPath id="c1"><rect width="3"/></clipPath><path id="m1" d="M 0 0"/></defs>'
            '<use xlink:href="#m1"/><path clip-path="url(#c1)" style="fill: URL( \'#m1\' ); stroke: #fff"/>'
        ),
        "words-1-",
        "Words",
    )
    assert re.findall(r' id="([^"]*)"', text) == ["words-1-c1", "words-1-m1"]
    assert 'href="#words-1-m1"' in text
    assert 'clip-path="url(#words-1-c1)"' in text
    assert 'style="fill: url(#words-1-m1); stroke: #fff"' in text


def test_a_drawing_says_what_it_is_and_takes_the_size_that_is_there():
    text = inline_svg(svg(""), "p-", 'What "it" <is>')
    root = ET.fromstring(text)
    assert (root.tag, root.get("role"), root.get("aria-label")) == ("svg", "img", 'What "it" <is>')
    assert (root.get("width"), root.get("height"), root.get("viewBox")) == (None, None, "0 0 9 6")
    assert "max-width: 9pt" in root.get("style")
    assert ET.fromstring(inline_svg(svg("", 'width="9" height="6"'), "p-", "")).get("viewBox") == "0 0 9 6"


@pytest.mark.parametrize(
    "inside",
    [
        "<script>alert(1)</script>",
        "<style>* { color: red }</style>",
        "<metadata><a href='http://example.org'/></metadata>",
        "<foreignObject><iframe src='http://example.org'/></foreignObject>",
        '<a xlink:href="javascript:alert(1)"><path d="M 0 0"/></a>',
        '<path onclick="alert(1)" d="M 0 0"/>',
        '<image xlink:href="http://example.org/a.png"/>',
        '<image xlink:href="data:image/svg+xml;base64,AAAA"/>',
        '<use xlink:href="http://example.org/a.svg#b"/>',
        '<path style="fill: url(http://example.org/a)"/>',
        '<path fill="url( &quot;//example.org/a&quot; )"/>',
        '<path style="fill: URL(http://example.org/a"/>',
        '<path style="fill: url(alert.png)"/>',
        '<path style="fill: u\\72l(alert.png)"/>',
        '<path style="background: image-set(&quot;alert.png&quot; 1x)"/>',
        '<path style="@import &quot;alert.css&quot;"/>',
        '<animate attributeName="href" values="javascript:alert(1)"/>',
    ],
)
def test_what_would_run_or_load_is_dropped(inside):
    text = inline_svg(svg(inside), "p-", "")
    for word in ("script", "example.org", "svg+xml", "alert", "<style", "onclick", "animate"):
        assert word not in text


def test_a_png_within_the_file_stays():
    image = "data:image/png;base64,iVBORw0KGgo="
    assert f'href="{image}"' in inline_svg(svg(f'<image xlink:href="{image}"/>'), "p-", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no drawing", "not SVG"),
        ("<html/>", "found an element html, expected svg"),
        ('<!DOCTYPE svg [<!ENTITY a "aaaa">]><svg>&a;</svg>', "entity declaration"),
    ],
)
def test_what_is_no_drawing_is_refused_by_name(text, message):
    with pytest.raises(UserError, match=message) as error:
        inline_svg(text, "p-", "", "words/words.svg")
    assert str(error.value).startswith("words/words.svg: ")


def test_a_missing_drawing_is_refused_by_name(tmp_path):
    with pytest.raises(UserError, match=r"lexical\.svg: no such file, expected the plot"):
        read_svg(tmp_path / "lexical.svg")
    (tmp_path / "lexical.svg").write_bytes(b"\xff\xff")
    with pytest.raises(UserError, match=r"lexical\.svg: cannot be read"):
        read_svg(pathlib.Path(tmp_path / "lexical.svg"))


@settings(derandomize=True, max_examples=40)
@given(st.lists(st.from_regex(r"[A-Za-z][A-Za-z0-9_.]{0,6}", fullmatch=True), min_size=1, unique=True))
def test_two_drawings_of_the_same_names_share_none(names):
    text = svg("".join(f'<path id="{name}"/><use xlink:href="#{name}"/>' for name in names))
    ids, references = (
        [set(re.findall(pattern, inline_svg(text, prefix, ""))) for prefix in ("a-", "b-")]
        for pattern in (r'id="([^"]*)"', r'href="#([^"]*)"')
    )
    assert ids == references
    assert not ids[0] & ids[1] and len(ids[0]) == len(names)


def test_the_plot_of_the_tests_is_a_drawing():
    assert inline_svg(files.SVG, "p-", "").count("p-m1") == 2
