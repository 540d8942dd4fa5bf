"""A table's columns line up, and its figures read alike."""

import pytest

from bert_flow_tf.results.table import Table, count, number

SCORES = Table(
    ("task", "pairs", "score", "Δ"),
    [
        ("STS-B", count(1379), number(81, spread=2.645, note="n = 3"), number(0.541, sign="+")),
        ("all", count(12), number(-0.5), None),
    ],
    title="Scores",
    notes=["n: seeds"],
)


def test_words_go_to_the_left_and_figures_to_the_right():
    assert SCORES.to_text().splitlines() == [
        "Scores",
        "task   pairs                 score      Δ",
        "-----------------------------------------",
        "STS-B  1,379  81.00 ± 2.65 (n = 3)  +0.54",
        "all       12                 -0.50      -",
        "n: seeds",
    ]


def test_a_total_stands_below_a_rule_as_wide_as_the_widest_line():
    table = Table(("stage", "s", ""), [("flow", number(1), "done"), ("total", number(12.5), "")], has_total=True)
    assert table.to_text().splitlines() == [
        "stage      s",
        "------------------",
        "flow    1.00  done",
        "------------------",
        "total  12.50",
    ]
    assert Table(("a", "b"), [("x", None)]).to_text(missing="").splitlines()[-1] == "x"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (number(0.004, sign="+"), "0.00"),
        (number(-0.004, sign="+"), "0.00"),
        (number(-5.384, sign="+"), "-5.38"),
        (number(-0.00001, 4), "0.0000"),
        (number(-0.0001, 4), "-0.0001"),
        (number(339.04, 0), "339"),
        (number(None), None),
        (count(None), None),
    ],
)
def test_a_figure_has_its_decimals_and_a_sign_unless_it_rounds_to_zero(cell, text):
    assert cell.text == text


def test_a_column_without_a_cell_can_be_left_out():
    table = Table(("a", "b", "c"), [("x", None, number(1)), ("y", number(None), None)])
    assert table.without_empty_columns().columns == ["a", "c"]
