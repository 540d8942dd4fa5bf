"""`--seeds`: how many, or which."""

import pytest

from bert_flow_tf.commands.seeds import parse_seeds
from bert_flow_tf.errors import UserError


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1", [1]), ("3", [1, 2, 3]), ("7,8", [7, 8]), ("7,", [7]), ("0,", [0]), (" 9 , 2 ", [9, 2]), ("1000,", [1000])],
)
def test_a_number_is_how_many_and_a_list_is_which(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0", "found 0, expected at least one"),
        ("1,2,1", "found '1,2,1', expected different seeds"),
        ("", "found '', expected how many"),
        (",", "found ',', expected how many"),
        ("-1", "found '-1', expected how many"),
        ("1.5", "found '1.5', expected how many"),
        ("two", "found 'two', expected how many"),
        ("²", "found '²', expected how many"),
        # A seed of which the comma was forgotten.
        ("20201116", "found 20201116, expected at most 1000 of them (20201116, with the comma is one seed)"),
        ("1,4294967296", "found 4294967296, expected seeds up to 999999999"),
    ],
)
def test_anything_else_is_refused(text, message):
    with pytest.raises(UserError) as error:
        parse_seeds(text)
    assert str(error.value).startswith(f"--seeds: {message}")
