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


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("own_bad.py", "x = 1\ny = x / 0\n", "own_bad.py, line 2: ZeroDivisionError: division"),
        ("own_end.py", "import sys\n\nsys.exit(3)\n", "own_end.py, line 3: SystemExit: 3"),
        ("own_half.py", "def f(:\n", "own_half.py: SyntaxError: "),
        ("json.py", "", "json.py, whose name is that of another module"),
        ("own-v1.2.py", "", "own-v1.2.py, expected a file name of letters, digits and"),
        ("own_text.txt", "", "own_text.txt, expected a Python file"),
        ("missing.py", None, "missing.py, expected a Python file"),
    ],
)
def test_mistakes_are_one_line(tmp_path, name, text, found):
    if text is not None:
        (tmp_path / name).write_text(text)
    assert found in refused("--code", name, "evaluate")
    assert not any(one.startswith("own_") for one in sys.modules)
    with user_error(found):
        import_code(name)
