"""What tests may be skipped for, and what is never skipped in CI."""

import pytest

from tests.conftest import find_reference_data


@pytest.mark.parametrize(
    ("required", "outcome"), [("0", pytest.skip.Exception), ("1", pytest.fail.Exception)], ids=["skipped", "failed"]
)
def test_a_missing_program_skips_or_fails_as_the_environment_says(require, monkeypatch, required, outcome):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("BERT_FLOW_REQUIRE_ALL", required)
    with pytest.raises(outcome, match="curl is not installed: apt-get install curl"):
        require("curl")


def test_reference_data_that_nobody_named_is_missing_without_a_path(tmp_path):
    (tmp_path / "shared" / "golden").mkdir(parents=True)
    assert find_reference_data(None, default=tmp_path / "shared") == tmp_path / "shared"
    for named, says_where in ((None, False), (str(tmp_path), True)):
        with pytest.raises(pytest.skip.Exception, match="BERT_FLOW_REFERENCE_DATA names their folder") as skipped:
            find_reference_data(named, default=tmp_path / "none")
        assert (str(tmp_path) in str(skipped.value)) == says_where
