"""The lock, requirements.in and setup.py name the same packages."""

import ast
import pathlib
import re

import pytest
from packaging.requirements import Requirement

# The scripts of README use these extras.
IN_LOCK = ("dev", "models")
_ROOT = pathlib.Path(__file__).parents[2]


def _lines(name):
    lines = (_ROOT / name).read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def _requirements(name):
    return [Requirement(line.partition(" --hash=")[0]) for line in _lines(name)]


def _declared(keyword):
    """The literal that setup.py gives `setup` for a keyword."""
    tree = ast.parse((_ROOT / "setup.py").read_text(encoding="utf-8"))
    values = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.keyword) and node.arg == keyword
    ]
    return ast.literal_eval(values[0])


def test_the_lock_pins_every_line_with_its_digest():
    for line, requirement in zip(
        _lines("requirements.txt"), _requirements("requirements.txt"), strict=True
    ):
        assert re.search(r" --hash=sha256:[0-9a-f]{64}$", line), requirement
        assert [specifier.operator for specifier in requirement.specifier] == ["=="], requirement
        assert requirement.url is None


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12", "3.13"])
def test_the_lock_holds_what_requirements_in_asks_for(python):
    # A platform that every package of the lock has files for.
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.1",
        "sys_platform": "linux",
    }
    environment |= {"platform_system": "Linux", "platform_python_implementation": "CPython"}
    environment["implementation_name"] = "cpython"
    locked = {}
    for requirement in _requirements("requirements.txt"):
        if requirement.marker is None or requirement.marker.evaluate(environment):
            assert requirement.name not in locked, "pinned twice"
            locked[requirement.name] = next(iter(requirement.specifier)).version
    for requirement in _requirements("requirements.in"):
        assert requirement.specifier.contains(locked[requirement.name]), requirement


def test_setup_declares_what_requirements_in_asks_for():
    extras = _declared("extras_require")
    declared = [*_declared("install_requires"), *(one for name in IN_LOCK for one in extras[name])]
    # Requirements write equal ranges alike.
    assert sorted(str(Requirement(one)) for one in declared) == sorted(
        map(str, _requirements("requirements.in"))
    )
