"""The site of README, guides and reference is built without a warning."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from bert_flow_tf.cli import _COMMANDS

_ROOT = pathlib.Path(__file__).parents[1]
_COMMAND = re.search(
    r"^\.venv/bin/(mkdocs .+)$",
    (_ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


@pytest.fixture(scope="module")
def site(require, built_once):
    """Folder of the site, as CONTRIBUTING.md's command makes it."""
    require("mkdocs")

    def build(folder):
        command = [sys.executable, "-m", *shlex.split(_COMMAND[1]), "--site-dir", folder]
        environment = os.environ | {"PYTHONPATH": str(_ROOT), "NO_MKDOCS_2_WARNING": "1"}
        done = subprocess.run(
            command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert not re.search(r"^(?!INFO)", done.stderr.strip(), re.MULTILINE), done.stderr

    return built_once("site", build)


def test_guides_and_what_lies_beside_them_are_pages_with_links_to_each_other(site):
    for guide in [*(_ROOT / "docs").rglob("*.md"), *(_ROOT / "docs").glob("*.ipynb")]:
        assert (site / guide.relative_to(_ROOT / "docs")).with_suffix(".html").is_file(), guide
    overview = (site / "index.html").read_text(encoding="utf-8")
    assert {"python.html", "speed.html", "LICENSE.txt"} <= set(
        re.findall(r'<a href="([\w./]+)"', overview)
    )
    contributing = (site / "contributing.html").read_text(encoding="utf-8")
    assert '<a href="architecture.html">docs/architecture.md</a>' in contributing


def test_the_reference_has_the_public_names_and_every_command(site):
    python, flow, commands = (
        (site / "reference" / f"{name}.html").read_text(encoding="utf-8")
        for name in ("python", "flow", "commands")
    )
    for page, name in (
        (python, "api.BertFlow.fit"),
        (python, "api.BertFlow.encode"),
        (flow, "FlowCalibrator.fit"),
    ):
        assert f'{name}"' in page
    for name in _COMMANDS:
        assert f"Usage: bert-flow {name} [OPTIONS]" in commands
    # The page must list the scripts' environment variables.
    assert "BERT_PREMODELS" in commands and "TEXT_FILES" in commands
    # A note for the repository's readers would be false here.
    assert "when the site is built" not in python + flow
    # A parameter list must not have two names before one colon.
    assert not re.findall(r"<code>\w+,</code>", python + flow)
