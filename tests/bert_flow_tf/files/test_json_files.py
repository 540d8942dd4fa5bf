"""JSON files are read as they were written."""

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
    write_json(path, {"a": 1})
    assert read_json(path, dict, expected="numbers", versioned=False) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (b'{"format_version": 2, "parts": [{"count": "x"}]}', ["`$.parts[0].count`"]),
        (b'{"format_version": 2, "parts": [{}]}', ["`count`", "`$.parts[0]`"]),
        (b'{"format_version": 2}', ["`parts`"]),
        (b'{"format_version": 1, "parts": []}', ["found format_version 1, expected 2"]),
        (b'{"parts": []}', ["found format_version None"]),
        (b"[" * 100_000, ["array"]),
        (b'{"format_version": 2, "x": ' + b"[" * 100_000, []),
        (b'{"format_version": 2, "parts": [{"count": 1, "share": NaN}]}', []),
        (b'{"format_version": 2, "parts": [{"count": 1, "share": 1e999}]}', ["out of range"]),
        (b"", []),
        (b'{"format_version": "\xff"}', []),
        (None, ["no such file"]),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_key(path, text, parts):
    if text is not None:
        path.write_bytes(text)
    with user_error(f"{path}: ", *parts):
        read_json(path, _Whole, expected="results")


def test_a_number_that_is_not_finite_is_not_written(path):
    for number in (float("nan"), -float("inf")):
        with pytest.raises(ValueError, match=r"nan|inf"):
            write_json(path, _Whole([_Part(1, number)]))
    assert not path.exists()
