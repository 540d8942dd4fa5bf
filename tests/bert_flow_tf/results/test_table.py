"""One table in three forms: columns line up, figures read alike, and no text becomes markup."""

import pytest
from hypothesis import given, settings

from bert_flow_tf.results.table import Cell, Table, count, difference, number
from tests.bert_flow_tf.markup import ANY_TEXT, Page, markdown_as_html

SCORES = Table(
    ("task", "pairs", "score", "Δ"),
    [
        ("STS-B", count(1379), number(81, spread=2.645, note="n = 3"), difference(0.541)),
        ("all", count(12), number(-0.5), None),
    ],
    title="Scores",
    notes=["n: seeds"],
)


def test_as_text_words_go_to_the_left_and_figures_to_the_right():
    assert SCORES.to_text().splitlines() == [
        "Scores",
        "task   pairs                 score      Δ",
        "-----------------------------------------",
        "STS-B  1,379  81.00 ± 2.65 (n = 3)  +0.54",
        "all       12                 -0.50      -",
        "n: seeds",
    ]


def test_as_text_a_total_stands_below_a_rule_as_wide_as_the_widest_line():
    table = Table(("stage", "s", ""), [("flow", number(1), "done"), ("total", number(12.5), "")], has_total=True)
    assert table.to_text().splitlines() == [
        "stage      s",
        "------------------",
        "flow    1.00  done",
        "------------------",
        "total  12.50",
    ]
    assert Table(("a", "b"), [("x", None)]).to_text(missing="").splitlines()[-1] == "x"


def test_as_markdown_every_row_has_every_cell():
    assert SCORES.to_markdown().splitlines() == [
        "**Scores**",
        "",
        "| task | pairs | score | Δ |",
        "| :-- | --: | --: | --: |",
        "| STS-B | 1,379 | 81.00 ± 2.65 (n = 3) | +0.54 |",
        "| all | 12 | −0.50 |  |",
        "",
        "n: seeds",
    ]


def test_as_html_rows_and_columns_have_headings_and_notes_are_small():
    lines = SCORES.to_html("scores-1").splitlines()
    assert lines[0] == '<div class="scroll" role="region" aria-labelledby="scores-1" tabindex="0"><table>'
    assert lines[1] == '<caption id="scores-1">Scores</caption>'
    assert lines[2].startswith('<thead><tr><th scope="col">task</th><th scope="col" class="figure">pairs</th>')
    figure = '<td class="figure" data-label="score">81.00 ± 2.65<span class="note">n = 3</span></td>'
    assert lines[4].startswith(
        '<tr><th scope="row">STS-B</th><td class="figure" data-label="pairs">1,379</td>' + figure
    )
    assert lines[-1] == "<p>n: seeds</p>"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (difference(0.004), "0.00"),
        (difference(-0.004), "0.00"),
        (difference(-5.384), "−5.38"),
        (number(-0.00001, 4), "0.0000"),
        (number(-0.0001, 4), "−0.0001"),
        (number(339.04, 0), "339"),
        (number(None), ""),
        (count(None), ""),
        (Cell("-x-"), "-x-"),
    ],
)
def test_a_figure_has_its_decimals_and_a_sign_unless_it_rounds_to_zero(cell, text):
    assert cell.text(missing="", minus="−") == text


def test_a_column_without_a_cell_can_be_left_out():
    table = Table(("a", "b", "c"), [("x", None, number(1)), ("y", number(None), None)])
    assert table.without_empty_columns().columns == ["a", "c"]


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="found 1 cells, expected 2"):
        Table(("a", "b"), [("x",)])


def test_a_heading_without_words_is_none_to_those_who_hear_the_page():
    page = Page(Table(("claim", ""), [("it runs", "yes")]).to_html("t"))
    assert [one["scope"] for one in page.all("th")] == ["col", "row"]


@settings(derandomize=True, max_examples=300)
@given(ANY_TEXT, ANY_TEXT)
def test_text_never_becomes_markup(text, note):
    """Read by an HTML parser and by one of GitHub's Markdown, the table is the same with any text in its cells."""
    table = Table(("x", f"x{text}"), [(Cell("x", note=note), text)], title="x" + text)
    harmless = Table(("x", "x"), [(Cell("x", note=note and "x"), "x")], title="x")
    page, expected = Page(table.to_html("t")), Page(harmless.to_html("t"))
    # A cell says its column's heading too, where rows are stacked.
    assert [one.pop("data-label") for one in page.all("td")] == [f"x{text}"]
    assert [one.pop("data-label") for one in expected.all("td")] == ["x"]
    assert page.tags == expected.tags
    assert page.text == "".join(f"x{text}xx{text}x{note}{text}".split())
    page, expected = (Page(markdown_as_html(one.to_markdown())) for one in (table, harmless))
    assert page.tags == expected.tags
    shown_note = f"({note})" if note.split() else ""
    assert page.text == "".join(f"x{text}xx{text}x{shown_note}{text}".split())
