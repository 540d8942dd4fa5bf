"""Columns of a table line up."""

from bert_flow_tf.evaluation.text_table import aligned, number


def test_columns_are_set_to_the_right_but_for_the_first():
    assert aligned([["", "one", "b"], ["first", "1", "22"], ["x", "333", ""]]).splitlines() == [
        "       one   b",
        "--------------",
        "first    1  22",
        "x      333",
    ]


def test_further_columns_may_be_set_to_the_left():
    lines = aligned([["task", "split", "n"], ["STS-12", "test", "10"]], left=(0, 1)).splitlines()
    assert lines == ["task    split   n", "-" * 17, "STS-12  test   10"]


def test_what_is_not_known_is_a_dash():
    assert (number(None), number(-24.552)) == ("-", "-24.55")
