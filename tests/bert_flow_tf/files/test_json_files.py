"""JSON files come back as they were written; whatever is wrong with one is a line with the file and the key."""

import msgspec
import pytest

from bert_flow_tf.files.json_files import FORMAT_VERSION, read_json, write_json
from tests.refusals import user_error


class _Part(msgspec.Struct):
    count: int
    share: float | None = None


class _Whole(msgspec.Struct):
    parts: list[_Part]
    format_version: int = FORMAT_VERSION


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.json"


def test_what_is_written_comes_back(path):
    whole = _Whole([_Part(1, 0.1), _Part(2)])
    write_json(path, whole)
    assert read_json(path, _Whole, expected="results") == whole
    assert path.read_text().endswith("\n") and "  " in path.read_text()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"format_version": 2, "parts": [{"count": "x"}]}', "`$.parts[0].count`"),
        ('{"format_version": 2, "parts": [{}]}', "`count` - at `$.parts[0]`"),
        ('{"format_version": 2}', "`parts`"),
        ('{"format_version": 1, "parts": []}', "found format_version 1, expected 2: results"),
        ('{"parts": []}', "found format_version None, expected 2: results"),
        ("[]", "Expected `object`, got `array`"),
        ("[" * 100_000, "Expected `object`, got `array`"),
        ('{"format_version": 2, "x": ' + "[" * 100_000, ""),
        ('{"format_version": 2, "parts": [{"count": 1, "share": NaN}]}', ""),
        ('{"format_version": 2, "parts": [{"count": 1, "share": 1e999}]}', "Number out of range"),
        ("", ""),
        ('{"format_version": "\udcff"}', ""),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_key(path, text, line):
    path.write_bytes(text.encode(errors="surrogateescape"))
    with user_error(f"{path}: ", line):
        read_json(path, _Whole, expected="results")


def test_a_missing_file_and_a_folder_are_one_line(path):
    for place, found in ((path, "no such file"), (path.parent, "cannot be read as results")):
        with user_error(f"{place}: {found}"):
            read_json(place, _Whole, expected="results")


def test_a_number_that_is_not_finite_is_not_written(path):
    for number in (float("nan"), -float("inf")):
        with pytest.raises(ValueError, match=r"nan|inf"):
            write_json(path, _Whole([_Part(1, number)]))
    assert not path.exists()


def test_without_a_version_any_type_is_read(path):
    write_json(path, {"a": 1})
    assert read_json(path, dict, expected="numbers", versioned=False) == {"a": 1}
