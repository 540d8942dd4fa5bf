"""Parts are found by their path, in imported modules alone."""

import hashlib
import importlib
import linecache
import pathlib
import sys
import types

import pytest

from glow.parts import code_digest, part_path, resolve_part

FILE = pathlib.Path(__file__)


class Outer:
    def method(self):
        """Be found by a path of several names."""


def test_a_path_resolves_to_its_part():
    assert part_path(Outer.method) == f"{__name__}:Outer.method"
    for part in (Outer, Outer.method):
        assert resolve_part(part_path(part)) is part
        assert code_digest(part_path(part)) == hashlib.sha256(FILE.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("no_such_module:name", "import no_such_module first, or give --code FILE.py"),
        (f"{__name__}:Missing", f"expected a class or function that {__name__} defines"),
        (f"{__name__}:part_path", "expected a class or function that"),
        (f"{__name__}:FILE", "expected a class or function that"),
        ("shutil:rmtree", "expected a class or function that shutil defines"),
    ],
)
def test_another_path_is_refused_in_one_line(path, found):
    with pytest.raises(ValueError, match=found) as error:
        resolve_part(path)
    assert str(error.value).startswith(f"found {path}, ") and "\n" not in str(error.value)


def test_what_another_process_cannot_import_has_no_digest(monkeypatch):
    def local():
        """Be no name of a module."""

    main = types.ModuleType("__main__")
    exec("def mine(): pass", vars(main))
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert resolve_part("__main__:mine") is main.mine
    for part, found in (("__main__:mine", "mine"), (lambda: 1, ".*<lambda>"), (local, ".*local")):
        with pytest.raises(ValueError, match=f"found {found}; put it into a module of its own"):
            code_digest(part)


def test_a_module_without_file_gives_the_parts_own_source(monkeypatch):
    module = types.ModuleType("own_without_file")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    source = "def part(): pass\n"
    exec(compile(source, "own source", "exec"), vars(module))
    with pytest.raises(ValueError, match="own_without_file:part, whose source cannot be read"):
        code_digest("own_without_file:part")
    monkeypatch.setitem(linecache.cache, "own source", (len(source), None, [source], "own source"))
    assert code_digest("own_without_file:part") == hashlib.sha256(source.encode()).hexdigest()


SOURCE = """
BOUND = 2.0

class Part:
    def method(self):
        return lambda: BOUND

def function():
    return 1
"""


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    """The file of an imported module `own_file`."""
    file = tmp_path / "own_file.py"
    file.write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_file", raising=False)
    module = importlib.import_module("own_file")
    # Python adapts the code of a function that has run often; it stays the same code.
    for _ in range(100):
        assert module.function() == 1
    yield file
    del sys.modules["own_file"]


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    "edited",
    [SOURCE.replace("return 1", "return 2"), SOURCE.replace("BOUND", "\nBOUND", 1), "def"],
)
def test_a_file_that_was_edited_after_its_import_is_refused(own_file, edited):
    own_file.write_text(edited)
    for part in ("own_file:Part", "own_file:function"):
        with pytest.raises(ValueError, match=f"found {part}, whose file has changed since"):
            code_digest(part)


def test_the_digest_is_that_of_the_first_look(own_file):
    assert code_digest("own_file:Part") == digest(SOURCE)
    edited = SOURCE.replace("2.0", "3.0")
    own_file.write_text(edited)
    assert code_digest("own_file:Part") == digest(SOURCE)
    # A module that is loaded again has other parts.
    importlib.reload(sys.modules["own_file"])
    assert code_digest("own_file:Part") == digest(edited)
