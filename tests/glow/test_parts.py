"""Parts are found by their path, in imported modules alone."""

import hashlib
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
