"""Result files are read value by value, and a slip in one is a line that names file and key."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.report_records import Record, read_record


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ('{"a": NaN}', "found NaN, expected finite numbers"),
        ('{"a": [-Infinity]}', "found -Infinity, expected finite numbers"),
        ('{"a": 1e999}', "found 1e999, expected finite numbers"),
        ("[1, 2]", "found [1, 2], expected an object"),
        ('{"format_version": 2}', "found format_version 2, expected 1"),
        ('{"format_version": "1"}', 'found format_version "1", expected 1'),
    ],
)
def test_a_file_that_is_no_result_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        read_record(path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)


def test_bytes_that_are_no_text_and_a_missing_file_are_refused(tmp_path):
    path = tmp_path / "results.json"
    with pytest.raises(UserError, match="cannot be read"):
        read_record(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="not JSON"):
        read_record(path)


RECORD = Record(
    "f.json",
    {"a": {"b": 1.5, "c": True, "d": None, "e": [0.1, "x"], "f": [1, 2.0], "g": [{"h": 2}], "k": "7", "l": "1.0"}},
)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda a: a.text("b"), "f.json: a.b: found 1.5, expected text"),
        (lambda a: a.text("z"), "f.json: a.z: found nothing, expected text"),
        (lambda a: a.text("d"), "f.json: a.d: found null, expected text"),
        (lambda a: a.number("c"), "f.json: a.c: found true, expected a number"),
        (lambda a: a.whole("b"), "f.json: a.b: found 1.5, expected a whole number"),
        (lambda a: a.flag("b"), "f.json: a.b: found 1.5, expected true or false"),
        (lambda a: a.score("b"), "f.json: a.b: found 1.5, expected a fraction from -1 to 1"),
        (lambda a: a.numbers("e"), 'f.json: a.e: found [0.1, "x"], expected a list of numbers, not empty'),
        (lambda a: a.scores("f"), "f.json: a.f: found 2.0, expected fractions from -1 to 1"),
        (lambda a: a.choice("k", ("x", "y")), 'f.json: a.k: found "7", expected one of x, y'),
        (lambda a: a.digits("l"), 'f.json: a.l: found "1.0", expected a whole number as text'),
        (lambda a: a.texts("e"), 'f.json: a.e: found [0.1, "x"], expected a list of texts'),
        (lambda a: a.setting("e"), 'f.json: a.e: found [0.1, "x"], expected a number, true or false'),
        (lambda a: a.listed("f"), "f.json: a.f: found [1, 2.0], expected a list of objects"),
        (lambda a: a.listed("g")[0].text("h"), "f.json: a.g[0].h: found 2, expected text"),
        (lambda a: a.parts(), "f.json: a.b: found 1.5, expected an object"),
    ],
)
def test_a_value_of_another_kind_is_named_with_the_keys_that_lead_to_it(read, message):
    with pytest.raises(UserError) as error:
        read(RECORD.part("a"))
    assert str(error.value) == message


def test_what_is_optional_may_be_missing_or_null():
    a = RECORD.part("a")
    assert (a.texts("z"), a.setting("d"), a.digits("k")) == ([], None, 7)
    assert [a.text("z", True), a.number("d", True), a.part("z", True), a.score("d", True)] == [None] * 4


@settings(derandomize=True, max_examples=50)
@given(st.floats(-1, 1))
def test_a_fraction_comes_back_times_100_to_the_last_bit(value):
    record = Record("f.json", json.loads(json.dumps({"a": value, "b": [value]})))
    assert record.score("a") == 100 * value
    assert record.scores("b") == [100 * value]
