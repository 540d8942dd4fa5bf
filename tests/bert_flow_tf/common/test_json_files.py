"""JSON files are read as they were written."""

import msgspec
import pytest

from bert_flow_tf.common.json_files import read_json, write_json
from bert_flow_tf.common.version import FORMAT_VERSION
from tests.refusals import user_error


class _Whole(msgspec.Struct):
    shares: list[float]
    format_version: int = FORMAT_VERSION


def test_what_is_written_comes_back(tmp_path):
    whole, path = _Whole([0.1, 2.0]), tmp_path / "results.json"
    write_json(path, whole)
    assert read_json(path, _Whole, expected="results") == whole
    assert path.read_text().endswith("\n") and "  " in path.read_text()
    write_json(path, {"a": 1})
    assert read_json(path, dict, expected="numbers", versioned=False) == {"a": 1}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (b'{"format_version": 3, "shares": ["x"]}', ["`$.shares[0]`"]),
        (b'{"format_version": 3}', ["`shares`"]),
        (b'{"format_version": 1, "shares": []}', ["found format_version 1, expected 3"]),
        (b'{"shares": []}', ["found format_version None"]),
        (b"[", []),
        (None, ["no such file"]),
    ],
)
def test_a_mistake_is_one_line_that_names_file_and_key(tmp_path, text, parts):
    path = tmp_path / "results.json"
    if text is not None:
        path.write_bytes(text)
    with user_error(f"{path}: ", *parts):
        read_json(path, _Whole, expected="results")


@pytest.mark.parametrize("number", [float("nan"), -float("inf")])
def test_a_number_that_is_not_finite_is_not_written(tmp_path, number):
    with pytest.raises(ValueError, match=r"nan|inf"):
        write_json(tmp_path / "results.json", _Whole([number]))
    assert not (tmp_path / "results.json").exists()
