"""The paper's effect as a user runs it, through the shell, on a small BERT, little text and a few pairs."""

import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import matplotlib.image
import numpy as np
import pytest
from scipy import stats

from bert_flow_tf.recipe.effect import main
from bert_flow_tf.recipe.run import EMBEDDING_TYPES as KINDS
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


def test_it_prints_scores_and_mean_cosines_before_and_after(root, environment, printed):
    (mlm,) = (path.name for path in (root / "exp" / "paper_effect").glob("small_mlm_????????"))
    gold = [float(line.split("\t")[4]) for line in (root / "glue/STS-B/sts-test.csv").read_text().splitlines()]
    for title, name in (("before", "small"), ("MLM", mlm)):
        for kind in KINDS:
            for end, flow in (("", ""), (" + flow", "_flow")):
                run = root / "exp" / "paper_effect" / f"{name}_1234_STS-B_{kind}{flow}"
                score = stats.spearmanr(np.loadtxt(run / "test_results.tsv"), gold).statistic
                assert re.search(rf"^{title}, {kind}{re.escape(end)} .* {100 * score:.2f} ", printed, re.MULTILINE)
    cosines = re.findall(r"^(?:before|MLM), avg\S* +(-?\d\.\d\d) +(-?\d\.\d\d)$", printed, re.MULTILINE)
    assert len(cosines) == 4 and len(set(cosines)) > 1
    assert "from 47.29 to 65.62 (avg), 59.04 to 70.72 (avg-last-2)" in printed


def test_picture_has_the_two_panels_of_the_mlm_encoder(root, printed):
    (picture,) = (root / "exp" / "paper_effect").glob("small_mlm_????????/effect.png")
    assert f"written: {picture.relative_to(root)}\n" in printed
    height, width, _ = matplotlib.image.imread(picture).shape
    assert 1.5 < width / height < 2.5


def test_rerun_it_trains_nothing_and_prints_the_same_scores(environment, printed, root):
    again = run_script(root, environment)
    assert again.count("\n  done before\n") == 9
    assert printed.rpartition("mean cosine")[2] == again.rpartition("mean cosine")[2]


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("STEPS", "0", "STEPS: found '0', expected a whole number from 1"),
        ("TEXT_FILES", "none.txt wordnet", "none.txt"),
        ("RANDOM_SEED", "x", "RANDOM_SEED: found 'x'"),
        ("GLUE_DIR", "none", "none/STS-B"),
    ],
)
def test_a_variable_that_makes_no_sense_is_one_line(variable, value, line, tmp_path):
    environ = {"OUTPUT_PARENT_DIR": str(tmp_path), "BERT_HUB": "demo", variable: value}
    assert line in refused_by(lambda arguments: main(arguments, environ))
    assert not list(tmp_path.iterdir())
