"""A table's columns line up, and its figures read alike."""

import dataclasses

import pytest

from bert_flow_tf.results.table import Table, number

SCORES = Table(
    ("task", "pairs", "score", "Δ"),
    [
        ("STS-B", number(1379, 0), number(81, spread=2.645, note="n = 3"), number(0.541, sign="+")),
        ("all", number(12, 0), number(-0.5), None),
    ],
    title="Scores",
    notes=["n: seeds"],
)


def test_words_go_left_and_figures_right():
    assert SCORES.to_text().splitlines() == [
        "Scores",
        "task   pairs                 score      Δ",
        "-----------------------------------------",
        "STS-B  1,379  81.00 ± 2.65 (n = 3)  +0.54",
        "all       12                 -0.50      -",
        "n: seeds",
    ]


def test_a_total_stands_below_a_rule():
    table = Table(("stage", "s", ""), [("flow", number(1), "done"), ("total", number(12.5), "")], has_total=True)
    assert table.to_text().splitlines() == [
        "stage      s",
        "------------------",
        "flow    1.00  done",
        "------------------",
        "total  12.50",
    ]
    table = Table(("a", "b"), [("x", "y"), ("z", None)])
    assert [table.to_text(**missing).splitlines()[-1] for missing in ({}, {"missing": ""})] == ["z  -", "z"]


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
    ],
)
def test_a_figure_has_a_sign_unless_it_rounds_to_zero(cell, text):
    assert cell.text == text


def test_a_column_without_a_cell_is_left_out():
    table = Table(("a", "b", "c"), [("x", None, number(1)), ("y", number(None), None)])
    assert (table.columns, table.is_numeric) == (["a", "c"], [False, True])
    assert dataclasses.replace(table, title="t").columns == ["a", "c"]
