"""What tests may be skipped for, and what is never skipped in CI."""

import pathlib
import re

import pytest

_TESTS = pathlib.Path(__file__).parent


@pytest.mark.parametrize(
    ("required", "outcome"), [("0", pytest.skip.Exception), ("1", pytest.fail.Exception)], ids=["skipped", "failed"]
)
def test_a_missing_program_skips_or_fails_as_the_environment_says(require, monkeypatch, required, outcome):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("BERT_FLOW_REQUIRE_ALL", required)
    with pytest.raises(outcome, match="curl is not installed: apt-get install curl"):
        require("curl")


def test_only_the_model_server_and_the_reference_data_are_skipped_elsewhere():
    skips = re.compile(r"pytest\.(?:skip\(|importorskip)|mark\.skip")
    skipping = {path.name for path in _TESTS.rglob("*.py") if skips.search(path.read_text(encoding="utf-8"))}
    assert skipping == {"conftest.py", "test_model_server.py"}
