"""A table's columns line up, and programs can read it."""

import dataclasses
import json

from bert_flow_tf.common.table import Table, number


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


SCORES = Table(
    ("name", "task & split", "x100", "change", "best F1"),
    [
        (
            "runs/stsb_flow/a_long_name",
            "50% of STS-B | dev",
            number(81.2345, spread=2.645, note="n = 3", parts={"n": 3}),
            number(
                -1.23456, sign="+", note="95 %: -2.00 to -0.50", parts={"low": -2.0, "high": -0.5}
            ),
            number(0.7),
        ),
        ("plain", "all", number(79.5), None, number(float("nan"))),
    ],
    title="Scores over seeds, in words that are longer than the terminal",
    notes=["n: the number of seeds, each of which trains a flow of its own"],
)


def test_a_terminal_wraps_text_and_never_a_number():
    assert SCORES.to_text(width=44).splitlines() == [
        "Scores over seeds, in words that are longer",
        "than the terminal",
        "name     task &           x100        change",
        "         split",
        "--------------------------------------------",
        "runs/    50% of   81.23 ± 2.65         -1.23",
        "stsb_    STS-B |       (n = 3)  (95 %: -2.00",
        "flow/a_  dev                       to -0.50)",
        "long_",
        "name",
        "plain    all             79.50             -",
        "",
        "name                        best F1",
        "-----------------------------------",
        "runs/stsb_flow/a_long_name     0.70",
        "plain                           nan",
        "n: the number of seeds, each of which trains",
        "a flow of its own",
    ]
    assert SCORES.to_text(width=200) == SCORES.to_text()


def test_programs_get_all_digits_and_what_a_note_shows():
    assert SCORES.to_csv().splitlines() == [
        "name,task & split,x100,x100 std,x100 n,change,change low,change high,best F1",
        "runs/stsb_flow/a_long_name,50% of STS-B | dev,81.2345,2.645,3,-1.23456,-2.0,-0.5,0.7",
        "plain,all,79.5,,,,,,nan",
    ]
    found = json.loads(SCORES.to_format("json"))
    assert [row["x100"] for row in found["rows"]] == [81.2345, 79.5]
    assert found["rows"][1]["best F1"] is None
    assert (found["title"], found["notes"]) == (SCORES.title, SCORES.notes)
    noted = Table(("row", "paper"), [("a", number(47.29, note="BERT, base"))])
    assert noted.to_csv() == 'row,paper,paper note\na,47.29,"BERT, base"'


def test_markdown_and_latex_escape_and_align_numbers_right():
    assert SCORES.to_markdown().splitlines() == [
        r"| name | task \& split | x100 | change | best F1 |",
        "| --- | --- | ---: | ---: | ---: |",
        r"| runs/stsb\_flow/a\_long\_name | 50% of STS-B \| dev | 81.23 ± 2.65 (n = 3) "
        "| -1.23 (95 %: -2.00 to -0.50) | 0.70 |",
        "| plain | all | 79.50 |  | nan |",
    ]
    assert SCORES.to_latex().splitlines() == [
        r"% \usepackage{booktabs}",
        r"\begin{tabular}{llrrr}",
        r"\toprule",
        r"name & task \& split & x100 & change & best F1 \\",
        r"\midrule",
        r"runs/stsb\_flow/a\_long\_name & 50\% of STS-B $|$ dev & 81.23 $\pm$ 2.65 (n = 3) & "
        r"$-$1.23 (95 \%: $-$2.00 to $-$0.50) & 0.70 \\",
        r"plain & all & 79.50 & -- & nan \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    total = dataclasses.replace(SCORES, has_total=True)
    assert total.to_latex().count(r"\midrule") == 2
    odd = Table(("a",), [(r"\{x}^~$#<✓✗",)]).to_latex().splitlines()[5]
    assert odd == (
        r"\textbackslash{}\{x\}\textasciicircum{}\textasciitilde{}\$\#$<$$\surd$$\times$ \\"
    )
