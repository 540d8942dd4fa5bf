"""Every command of README.md is run: here on a small BERT, or by the tests of the script that it names."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest

from bert_flow_tf.recipe import run

_ROOT = pathlib.Path(__file__).parents[1]
_README = (_ROOT / "README.md").read_text(encoding="utf-8")
_BLOCKS = {
    name: (language, text)
    for name, language, text in re.findall(r"<!-- command: ([^\n]+) -->\n```(\w+)\n(.+?)```\n", _README, re.DOTALL)
}
_BASE = "uncased_L-12_H-768_A-12"


@pytest.fixture(scope="module")
def clone(documented_bert, tmp_path_factory):
    """A clone as a reader has it after set-up, with a small BERT in BERT base's place and STS-B of 36 pairs.

    The cache holds that BERT converted; a command of its own converts it to a folder.
    """
    root = tmp_path_factory.mktemp("clone")
    shutil.copytree(_ROOT / "run_scripts", root / "run_scripts")
    # The environment is there already: it is the one that this test runs in.
    (root / "run_scripts" / "setup_env.sh").write_text(f"VENV_PYTHON={shlex.quote(sys.executable)}\n")
    for package in ("bert_flow_tf", "glow"):
        (root / package).symlink_to(_ROOT / package)
    (root / ".venv" / "bin").mkdir(parents=True)
    for name, command in (("python", ""), ("bert-flow", " -m bert_flow_tf.cli")):
        path = root / ".venv" / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{command} "$@"\n')
        path.chmod(0o755)
    shutil.copytree(documented_bert / "bert", root / "premodels" / _BASE)
    shutil.copytree(documented_bert / "cache", root / "cache")
    rng = np.random.default_rng(0)

    def sentence():
        return " ".join(f"w{n}" for n in rng.integers(25, size=rng.integers(2, 9)))

    (root / "sentences.txt").write_text("".join(f"{sentence()}\n" for _ in range(64)))
    data = root / "glue_data" / "STS-B"
    data.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        rows = [[str(i), *["-"] * 6, sentence(), sentence(), f"{rng.uniform(0, 5):.3f}"] for i in range(12)]
        header = ["index", *["-"] * 6, "sentence1", "sentence2", "score"]
        (data / f"{split}.tsv").write_text("".join("\t".join(row) + "\n" for row in [header, *rows]))
    (data / "sts-test.csv").write_text("".join("\t".join(["-"] * 4 + [row[9], row[7], row[8]]) + "\n" for row in rows))
    return root


def _run(clone, name, replacements=()):
    """What a block of README.md prints, run in the clone."""
    language, text = _BLOCKS[name]
    for old, new in replacements:
        assert text.count(old) == 1
        text = text.replace(old, new)
    command = ["bash", "-euc", text] if language == "bash" else [sys.executable, "-c", text]
    environment = {**os.environ, "BERT_FLOW_CACHE": str(clone / "cache"), "PYTHONPATH": str(clone)}
    for variable in ("BERT_HUB", "PREPROCESS_HUB", "INIT_CKPT"):
        environment.pop(variable, None)
    done = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_every_block_of_code_is_a_command_with_a_test():
    # test_recipe.py and tests/run_scripts test the first one's stages and both scripts; the second may be running now.
    elsewhere = {"whole method": "siamese_then_flow.sh", "tests": "test.sh"}
    here = {"original", "TF1 runs", "tables", "convert and export", "client", "Python"}
    assert set(_BLOCKS) == {*elsewhere, *here}
    for name, script in elsewhere.items():
        assert _BLOCKS[name] == ("bash", f"bash run_scripts/{script}\n")
    assert len(re.findall(r"^```(?:bash|python)$", _README, re.MULTILINE)) == len(_BLOCKS)


def test_commands_train_score_convert_export_and_serve(clone):
    scores = _run(clone, "original")
    assert re.search(r"^Pearson: -?\d\.\d+, Spearman: -?\d\.\d+$", scores, re.MULTILINE)
    _run(clone, "TF1 runs")
    for name in ("stsb_flow", "from_tf1"):
        assert (clone / "runs" / name / "train_results.json").is_file()
    said = _run(clone, "tables").splitlines()
    assert said[-1].startswith("report written: report")
    assert (clone / "report" / "report.html").read_text(encoding="utf-8").count("<img ") >= 2
    said = _run(clone, "convert and export").splitlines()
    assert said[0] == "encoder folder written: encoders/bert_base"
    assert said[1].startswith("SavedModel written: exported/1 (reloaded: max difference ")
    _run(clone, "client")


def test_python_learns_a_flow_and_saves_it(clone, documented_encoder_dir):
    _run(clone, "Python", replacements=[('"demo"', repr(str(documented_encoder_dir)))])
    assert json.loads((clone / "my_model" / "bert_flow.json").read_text())["model"]["pooling"] == "avg-last-2"


def test_every_difference_from_the_original_is_pinned_by_a_test():
    table = _README.split("## Where it differs")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| .+ \|$", table, re.MULTILINE)[2:]
    assert len(rows) > 10
    tests = "".join(path.read_text(encoding="utf-8") for path in (_ROOT / "tests").rglob("test_*.py"))
    pinned = set(re.findall(r'^@pytest\.mark\.differs\("([^"]+)"\)$', tests, re.MULTILINE))
    assert {row: [key for key in pinned if key in row] for row in rows if sum(key in row for key in pinned) != 1} == {}
    assert [key for key in pinned if sum(key in row for row in rows) != 1] == []


def test_deviations_from_tf1_and_their_limits_are_those_of_the_golden_tests():
    rows = re.findall(r"^\| (.+?) \| (\de[+-]\d\d) \| (\de[+-]\d\d) \|$", _README, re.MULTILINE)
    assert len(rows) > 5
    tests = "".join(path.read_text(encoding="utf-8") for path in (_ROOT / "tests" / "golden").glob("test_*.py"))
    limits = {
        what: float(limit)
        for what, limit in re.findall(r'deviation\("([^"]+)", .+, (\de-\d|0)\)$', tests, re.MULTILINE)
    }
    assert {what: float(limit) for what, _, limit in rows}.items() <= limits.items()
    assert all(float(found) <= float(limit) for _, found, limit in rows)


def test_variables_are_those_that_the_recipe_reads():
    documented = re.findall(r"^\| `([A-Z_]+)` \|", _README, re.MULTILINE)
    assert documented == re.findall(r"^  ([A-Z_]+)  ", run.__doc__, re.MULTILINE)
