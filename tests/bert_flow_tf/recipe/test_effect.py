"""The paper's effect as a user runs it, through the shell, on a small BERT, little text and a few pairs."""

import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from bert_flow_tf.api import BertFlow
from bert_flow_tf.data.sts_sets import read_scored_split
from bert_flow_tf.data.tasks import get_task
from bert_flow_tf.evaluation.protocols import cosines
from bert_flow_tf.recipe.effect import main
from bert_flow_tf.recipe.stages import EMBEDDING_TYPES as KINDS
from tests.bert_flow_tf.recipe.workplace import write_first_pairs
from tests.refusals import refused_by

_ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="module")
def root(tmp_path_factory, documented_encoder_dir):
    """A clone after set-up, with text, pairs and a small encoder beside it."""
    root = tmp_path_factory.mktemp("effect")
    shutil.copytree(_ROOT / "run_scripts", root / "run_scripts")
    (root / "run_scripts" / "setup_env.sh").write_text(f"VENV_PYTHON={shlex.quote(sys.executable)}\n")
    for package in ("bert_flow_tf", "glow"):
        (root / package).symlink_to(_ROOT / package)
    write_first_pairs(root / "glue", 40)
    shutil.copytree(documented_encoder_dir, root / "small")
    rng = np.random.default_rng(0)
    for name in ("one.txt", "two.txt"):
        lines = (" ".join(f"w{n}" for n in rng.integers(25, size=6)) for _ in range(40))
        (root / name).write_text("".join(f"{line}\n" for line in lines))
    return root


@pytest.fixture(scope="module")
def environment(root):
    return {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(root),
        "BERT_FLOW_CACHE": str(root / "cache"),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "BERT_HUB": "small",
        "TEXT_FILES": "one.txt two.txt",
        "GLUE_DIR": "glue",
        "STEPS": "4",
    }


def run_script(root, environment):
    command = ["bash", "run_scripts/paper_effect.sh"]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def printed(root, environment):
    return run_script(root, environment)


def row(printed, words):
    """The cells of a row of the table."""
    (line,) = re.findall(rf"^{re.escape(words)}  .*$", printed, re.MULTILINE)
    return line[len(words) :].split()


def test_the_table_holds_what_the_commands_measure_beside_the_papers_figures(root, environment, printed):
    (mlm,) = (path.name for path in (root / "exp" / "paper_effect").glob("small_mlm_????????"))
    runs = [f"exp/paper_effect/{name}_1234_STS-B_{kind}_flow" for name in ("small", mlm) for kind in KINDS]
    found = {run: BertFlow.load(root / run) for run in runs}
    pairs = read_scored_split(get_task("STS-B"), root / "glue", "test", "test")
    scores = []
    for run in runs:
        a, b = found[run].encode(pairs.sentences_a), found[run].encode(pairs.sentences_b)
        scores.append(100 * stats.spearmanr(cosines(a, b, run), pairs.gold).statistic)
    # Ranks of the small encoder's cosines that differ by rounding may change places.
    assert [*map(float, row(printed, "STS-B, flow"))] == pytest.approx([*scores, 65.62, 70.72], abs=0.3)
    # The encoders differ, by what was learned.
    assert len(set(row(printed, "STS-B, as it is"))) == 6 and row(printed, "STS-B, as it is")[4:] == ["47.29", "59.04"]
    assert row(printed, "STS-B, NATSV")[4:] == ["60.40", "-"]
    assert row(printed, "mean cosine of random pairs, flow")[4:] == ["-", "-"]
    assert row(printed, "edit distance, flow")[4:] == ["-", "-28.01"]
    picture = root / "exp" / "paper_effect" / "picture" / "paper_effect.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "sample data" not in printed


def test_rerun_it_trains_nothing_and_prints_the_same_table(environment, printed, root):
    again = run_script(root, environment)
    assert again.count("done before") == 5
    table = printed.rpartition("\n\n")[0].rpartition("\n\n")[2]
    assert table.count("\n") > 12 and table in again


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("STEPS", "0", "STEPS: found '0', expected a whole number from 1"),
        ("TEXT_FILES", "wordnet none.txt", "TEXT_FILES: no file none.txt, expected files of text, or wordnet"),
        ("RANDOM_SEED", "x", "RANDOM_SEED: found 'x'"),
        ("GLUE_DIR", "none", "none/STS-B"),
    ],
)
def test_a_variable_that_makes_no_sense_is_one_line(variable, value, line, tmp_path):
    environ = {"OUTPUT_PARENT_DIR": str(tmp_path), "BERT_HUB": "demo", variable: value}
    assert line in refused_by(lambda arguments: main(arguments, environ))
    assert not list(tmp_path.iterdir())
