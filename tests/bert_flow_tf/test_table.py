"""A table's columns line up, and its figures read alike."""

from bert_flow_tf.table import Table, number


def test_text_is_left_aligned_and_numbers_right_aligned():
    spread = number(81, spread=2.645, note="n = 3")
    rows = [
        ("STS-B", number(1379, 0), spread, number(0.541, sign="+")),
        ("all", number(12, 0), number(-0.5), None),
    ]
    table = Table(("task", "pairs", "score", "Δ"), rows, title="Scores", notes=["n: seeds"])
    assert table.to_text().splitlines() == [
        "Scores",
        "task   pairs                 score      Δ",
        "-----------------------------------------",
        "STS-B  1,379  81.00 ± 2.65 (n = 3)  +0.54",
        "all       12                 -0.50      -",
        "n: seeds",
    ]


def test_a_figure_has_a_sign_unless_it_rounds_to_zero():
    for cell, text in (
        (number(0.004, sign="+"), "0.00"),
        (number(-0.004, sign="+"), "0.00"),
        (number(-5.384, sign="+"), "-5.38"),
        (number(-0.00001, 4), "0.0000"),
        (number(-0.0001, 4), "-0.0001"),
        (number(339.04, 0), "339"),
        (number(None), None),
    ):
        assert cell.text == text
