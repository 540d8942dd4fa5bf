"""docs/architecture.md agrees with the code."""

import pathlib
import re

import pytest

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

_ROOT = pathlib.Path(__file__).parents[1]
_PAGE = (_ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def _section(title):
    return re.search(rf"^## {title}\n(.+?)(?=^## |\Z)", _PAGE, re.MULTILINE | re.DOTALL)[1]


def _block(title):
    """Return the words of each line of a section's block."""
    return [
        line.split()
        for line in re.search(r"```text\n(.+?)```", _section(title), re.DOTALL)[1].splitlines()
    ]


@pytest.fixture(scope="module")
def layers():
    """The layers of pyproject.toml's contract, the highest first."""
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = settings["tool"]["importlinter"]["contracts"]
    return [{name.split(".")[-1] for name in layer.split(" | ")} for layer in contract["layers"]]


def test_picture_shows_the_layers_of_the_contract(layers):
    assert [set(line) - {"·"} for line in _block("Layers")] == layers


def test_every_room_stands_in_the_contract_and_has_its_sentence(layers):
    package = _ROOT / "bert_flow_tf"
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    files = {path.stem for path in package.glob("*.py")} - {"__init__"}
    assert set().union(*layers) == folders | files | {"glow"}
    assert re.findall(r"^\| `(\w+)` \| [^|]+\. \|$", _section("Rooms"), re.MULTILINE) == [
        room for line in _block("Layers") for room in line if room != "·"
    ]


@pytest.mark.parametrize("title", ["From sentences to z"])
def test_walks_name_real_functions_and_never_lead_back_up(layers, title):
    heights = []
    for path, name, *_ in _block(title):
        source = (_ROOT / path).read_text(encoding="utf-8")
        for part in name.split("."):
            assert re.search(rf"^ *(?:class|def) {part}\b", source, re.MULTILINE), (path, name)
        room = pathlib.Path(path.removeprefix("bert_flow_tf/")).parts[0].removesuffix(".py")
        heights.append(next(i for i, layer in enumerate(layers) if room in layer))
    assert heights == sorted(heights)
