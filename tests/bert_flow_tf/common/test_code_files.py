"""Files of code are imported once, and their mistakes are named."""

import os
import sys

import pytest

from bert_flow_tf.common.code_files import VARIABLE, import_code
from tests.refusals import refused, user_error


@pytest.fixture(autouse=True)
def modules(monkeypatch, tmp_path):
    """Forget the modules, the variable and the folder after each test."""
    before = set(sys.modules)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    yield
    os.environ.pop(VARIABLE, None)
    for name in set(sys.modules) - before:
        if name.startswith("own_"):
            del sys.modules[name]


def test_files_are_imported_once_and_inherited(tmp_path):
    for name in ("own_first", "own_second"):
        (tmp_path / f"{name}.py").write_text("COUNT = []\n")
    import_code(f"own_first.py{os.pathsep}own_second.py")
    first = sys.modules["own_first"]
    import_code("own_first.py")
    assert sys.modules["own_first"] is first
    assert os.environ[VARIABLE] == str(tmp_path / "own_first.py")


def test_mistakes_are_one_line(tmp_path):
    (tmp_path / "own_bad.py").write_text("x = 1\ny = x / 0\n")
    (tmp_path / "json.py").write_text("")
    (tmp_path / "own_text.txt").write_text("")
    with user_error("own_bad.py, line 2: ZeroDivisionError: division by zero"):
        import_code("own_bad.py")
    assert "own_bad" not in sys.modules
    with user_error("json.py, whose name is that of another module"):
        import_code("json.py")
    assert "own_text.txt, expected a Python file" in refused("--code", "own_text.txt", "evaluate")
    assert "missing.py, expected a Python file" in refused("--code", "missing.py", "evaluate")


@pytest.mark.parametrize("option", [["--code", "own_bad.py"], ["--code=own_bad.py"]])
def test_the_option_stands_before_or_behind_the_command(tmp_path, option):
    (tmp_path / "own_bad.py").write_text("1 / 0\n")
    for arguments in ([*option, "report"], ["report", *option], ["report", "--runs", "a", *option]):
        assert "own_bad.py, line 1: ZeroDivisionError" in refused(*arguments)
