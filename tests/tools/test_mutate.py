"""A bug counts as caught only where a test fails with it, and nothing is changed but a copy."""

import subprocess

import pytest

from tests.refusals import files_below, refused_by
from tools import mutate

_CODE = "def difference(a, b):\n    return a - b\n\n\ndef is_positive(a):\n    return a > 0\n"
_TEST = "import sums\n\n\ndef test_sums():\n    assert sums.difference(3, 2) == 1 and sums.is_positive(1)\n"
# Name -> text and replacement.
_BUGS = {
    "wrong-sign": ("a - b", "a + b"),
    "zero-is-positive": ("a > 0", "a >= 0"),
    "no-python": ("def is_positive", "is_positive"),
    "moved": ("return", "yield"),
}


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository whose test misses one of its bugs."""
    # A hook of git runs with the variables of another repository.
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    bugs = "".join(
        f'[{name}]\nfile = "sums.py"\ntext = "{text}"\nreplacement = "{replacement}"\ntests = ["test_sums.py"]\n'
        for name, (text, replacement) in _BUGS.items()
    )
    (tmp_path / "tools").mkdir()
    for name, text in {"sums.py": _CODE, "test_sums.py": _TEST, "tools/mutations.toml": bugs}.items():
        (tmp_path / name).write_text(text)
    for command in (["git", "init", "-q"], ["git", "add", "."]):
        subprocess.run(command, cwd=tmp_path, check=True)
    return tmp_path


def test_every_bug_has_its_verdict(checkout, capsys):
    before = files_below(checkout)
    assert mutate.main(["--jobs", "2"], checkout) == 1
    lines = capsys.readouterr().out.splitlines()
    for line in (
        "wrong-sign: caught by test_sums.py::test_sums (",
        "zero-is-positive: SURVIVED test_sums.py (",
        "no-python: not applicable: pytest ended with status ",
        "moved: not applicable: its text occurs 2 times in sums.py, expected once",
        "4 mutations: 1 caught, 1 survived, 2 not applicable",
    ):
        assert sum(found.startswith(line) for found in lines) == 1, (line, lines)
    assert mutate.main(["--only", "wrong-sign"], checkout) == 0
    assert files_below(checkout) == before


def test_a_check_runs_nothing(checkout, capsys, monkeypatch):
    monkeypatch.setattr(mutate, "run_tests", pytest.fail)
    assert mutate.main(["--check"], checkout) == 1
    assert capsys.readouterr().out.splitlines() == [
        "moved: its text occurs 2 times in sums.py, expected once",
        "4 mutations, 3 of them applicable",
    ]
    assert mutate.main(["--check", "--only", "no-python,wrong-sign"], checkout) == 0


def test_tests_that_fail_without_a_bug_are_refused(checkout):
    (checkout / "sums.py").write_text(_CODE.replace("a - b", "b - a"))
    line = refused_by(lambda arguments: mutate.main(arguments, checkout), "--only", "zero-is-positive")
    assert line.startswith("test_sums.py::test_sums: fails without a bug")


def test_a_name_that_is_no_bugs_is_refused(checkout):
    assert refused_by(lambda arguments: mutate.main(arguments, checkout), "--only", "wrong").startswith("--only: found")
