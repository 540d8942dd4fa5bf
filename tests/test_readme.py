"""Every command of README.md and of two pages has a test."""

import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from bert_flow_tf.encoder import source
from glow import config
from tests.bert_flow_tf import small_runs
from tests.refusals import succeeds

_ROOT = pathlib.Path(__file__).parents[1]
_README = (_ROOT / "README.md").read_text(encoding="utf-8")
_ORIGINAL, _REPRODUCE = (
    (_ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("original", "reproduce")
)
_PAGES = _README + _ORIGINAL + _REPRODUCE
_BLOCKS = {
    name: (language, text)
    for name, language, text in re.findall(
        r"<!-- command: ([^\n]+) -->\n```(\w+)\n(.+?)```\n", _PAGES, re.DOTALL
    )
}
_BASE = "uncased_L-12_H-768_A-12"


@pytest.fixture(scope="module")
def clone(documented_bert, documented_encoder_dir, small_default_flow, tmp_path_factory):
    """A clone after set-up, with a small BERT, default flow and STS-B."""
    root = tmp_path_factory.mktemp("clone")
    shutil.copytree(_ROOT / "run_scripts", root / "run_scripts")
    # The environment is there already: it is the one that this test runs in.
    (root / "run_scripts" / "setup_env.sh").write_text(
        f"VENV_PYTHON={shlex.quote(sys.executable)}\n"
    )
    (root / "bert_flow_tf").symlink_to(_ROOT / "bert_flow_tf")
    shutil.copytree(_ROOT / "glow", root / "glow")
    shutil.copytree(config._CONFIG_DIR, root / "glow" / "configs", dirs_exist_ok=True)
    shutil.copytree(documented_bert, root / "premodels" / _BASE)
    small_runs.write_sentences(root / "sentences.txt", 256)
    small_runs.write_stsb(
        root / "glue_data" / "STS-B", small_runs.TINY_WORDS[:25], (12, 12, 12), gold=True
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setenv("BERT_FLOW_CACHE", str(root / "cache"))
        patch.setenv("PYTHONPATH", str(root))
        for variable in ("BERT_HUB", "PREPROCESS_HUB", "INIT_CKPT"):
            patch.delenv(variable, raising=False)
        patch.setattr(source, "demo_encoder_dir", lambda: documented_encoder_dir)
        yield root


def _bert_flow(name):
    """Return the last line that each command of a block prints here."""
    lines = [shlex.split(line) for line in _BLOCKS[name][1].splitlines()]
    assert _BLOCKS[name][0] == "bash" and {program for program, *_ in lines} == {
        ".venv/bin/bert-flow"
    }
    return [succeeds(*arguments).splitlines()[-1] for _, *arguments in lines]


def test_every_block_of_code_has_a_test():
    # test_recipe.py and tests/run_scripts test the first two; the third may be running now.
    elsewhere = {
        "effect": "paper_effect.sh",
        "whole method": "siamese_then_flow.sh",
        "tests": "test.sh",
    }
    here = {"original", "convert", "tables", "Python"}
    assert set(_BLOCKS) == {*elsewhere, *here}
    for name, script in elsewhere.items():
        assert _BLOCKS[name] == ("bash", f"bash run_scripts/{script}\n")
    snippets = _REPRODUCE.count("<!-- snippet: ")  # test_docs.py runs those.
    assert len(re.findall(r"^```(?:bash|python)$", _PAGES, re.MULTILINE)) == len(_BLOCKS) + snippets


def test_readme_fits_on_a_page():
    assert len(_README.splitlines()) <= 160 and len(_README.split()) <= 1200


# It stands before the first test with `clone`, which replaces the demo encoder and the default flow.
def test_first_example_prints_what_the_readme_shows(demo_dir, capsys):
    exec(_BLOCKS["Python"][1], {})
    printed = capsys.readouterr().out
    shown = re.search(r"<!-- command: Python -->.+?```text\n(.+?)```", _README, re.DOTALL)[1]
    figures = r"-?\d+\.\d*"
    assert re.sub(figures, "", printed) == re.sub(figures, "", shown)
    # Another CPU rounds in another way, and 300 steps amplify that, to less than half of the
    # standard error.
    expected = [float(one) for one in re.findall(figures, shown)]
    assert [float(one) for one in re.findall(figures, printed)] == pytest.approx(
        expected, rel=0.003, abs=0.03
    )


def test_commands_train_score_convert_and_report(clone):
    command = ["bash", "-euc", _BLOCKS["original"][1]]
    for said in ("Running training", "Nothing to do: "):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and said in done.stderr, done.stderr[-3000:]
        assert re.search(r"^Pearson: -?\d\.\d+, Spearman: -?\d\.\d+$", done.stdout, re.MULTILINE)
    # One batch of 32 of the 36 pairs of all splits.
    assert (clone / "runs" / "stsb_flow" / "model.ckpt-1.index").is_file()
    assert _bert_flow("convert")[-1] == "written: encoders/bert_base"
    for name in ("stsb_flow", "from_tf1"):
        assert (clone / "runs" / name / "train_results.json").is_file()
    # A report ends with its last source, the comparison.
    assert _bert_flow("tables")[-1].startswith("recommended, ")


def test_every_difference_from_the_original_is_pinned_by_a_test():
    table = _ORIGINAL.split("## Where it differs")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| .+ \|$", table, re.MULTILINE)[2:]
    assert len(rows) > 10
    tests = "".join(
        path.read_text(encoding="utf-8") for path in (_ROOT / "tests").rglob("test_*.py")
    )
    pinned = set(re.findall(r'^@pytest\.mark\.differs\("([^"]+)"\)$', tests, re.MULTILINE))
    assert {
        row: [key for key in pinned if key in row]
        for row in rows
        if sum(key in row for key in pinned) != 1
    } == {}
    assert [key for key in pinned if sum(key in row for row in rows) != 1] == []
