"""The paper's effect as a user runs it, through the shell, on a small BERT, little text and a few pairs."""

import json
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from bert_flow_tf.recipe.effect import main, read_effect
from tests.bert_flow_tf.recipe.workplace import write_first_pairs
from tests.refusals import refused_by, user_error

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


def test_the_table_holds_what_the_commands_wrote_beside_the_papers_figures(root, printed):
    folder = root / "exp" / "paper_effect"
    runs = [f"{name}_1234_STS-B_{kind}_flow" for name in ("small", "small_mlm") for kind in ("avg", "avg-last-2")]
    gold = [float(line.split("\t")[4]) for line in (root / "glue/STS-B/sts-test.csv").read_text().splitlines()]
    flows = [100 * stats.spearmanr(np.loadtxt(folder / run / "test_results.tsv"), gold).statistic for run in runs]
    assert row(printed, "STS-B, flow") == [*(f"{score:.2f}" for score in flows), "65.62", "70.72"]
    for words, method, paper in (
        ("as it is", "none", ["47.29", "59.04"]),
        ("standardised (SN)", "sn", ["55.46", "-"]),
        ("NATSV, k by dev", "natsv", ["60.40", "-"]),
        ("whitened", "whitening", ["-", "-"]),
    ):
        rows = [json.loads((folder / "study" / f"{run}_calibrations.json").read_text())["rows"] for run in runs]
        scores = [next(100 * one["spearman"] for one in found if one["method"] == method) for found in rows]
        assert row(printed, f"STS-B, {words}") == [*(f"{score:.2f}" for score in scores), *paper]
    for side, words in (("without flow", ""), ("with flow", ", flow")):
        paths = [folder / "study" / f"{run}_isotropy" / "results.json" for run in runs]
        measures = [json.loads(path.read_text())["measures"][side] for path in paths]
        cosines = [f"{one['mean_cosine']:.2f}" for one in measures]
        assert row(printed, f"mean cosine of random pairs{words}") == [*cosines, "-", "-"]
    paths = [folder / "study" / f"{run}_lexical" / "results.json" for run in runs]
    distances = [json.loads(path.read_text())["rows"]["Flow-induced similarity"]["edit distance"] for path in paths]
    assert row(printed, "edit distance, flow") == [*(f"{one:.2f}" for one in distances), "-", "-28.01"]
    # The encoders differ, by what was learned.
    assert len(set(row(printed, "STS-B, as it is"))) == 6
    assert (folder / "picture" / "paper_effect.png").read_bytes().startswith(b"\x89PNG")
    assert "sample data" not in printed


def test_rerun_it_runs_nothing_and_prints_the_same_table(environment, printed, root):
    again = run_script(root, environment)
    assert again.count("done before") == 21 and "python" not in again
    table = printed.rpartition("\n\n")[0].rpartition("\n\n")[2]
    assert table.count("\n") > 12 and table in again


def interrupted_at(heading, root, environment, *arguments):
    """The first line that begins with `heading`, of a run that is then interrupted."""
    # A shell that starts the tests in the background has them ignore it.
    command = ["env", "--default-signal=INT", "bash", "run_scripts/paper_effect.sh", *arguments]
    with subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True) as process:
        line = next(line for line in process.stdout if line.startswith(heading))
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 130
    return line


def test_interrupted_under_overwrite_nothing_counts_as_done_before(root, environment, printed):
    shutil.copytree(root / "exp", root / "copy")
    environment = environment | {"OUTPUT_PARENT_DIR": "copy/paper_effect"}
    interrupted_at("[1/21]", root, environment, "--overwrite")
    assert "done before" not in interrupted_at("[2/21]", root, environment)


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("STEPS", "0", "STEPS: found '0', expected a whole number from 1"),
        ("TEXT_FILES", " ", "TEXT_FILES: found no name, expected files of text, or wordnet"),
        ("TEXT_FILES", "wordnet none.txt", "TEXT_FILES: no file none.txt, expected files of text, or wordnet"),
        ("BERT_NAME", "base", "BERT_NAME: found 'base', expected nothing"),
        ("RANDOM_SEED", "x", "RANDOM_SEED: found 'x'"),
        ("GLUE_DIR", "none", "none/STS-B: no such folder, expected the data of STS-B (GLUE_DIR"),
    ],
)
def test_a_variable_that_makes_no_sense_is_one_line(variable, value, line, tmp_path):
    environ = {"OUTPUT_PARENT_DIR": str(tmp_path), "BERT_HUB": "demo", variable: value}
    assert line in refused_by(lambda arguments: main(arguments, environ))
    assert not list(tmp_path.iterdir())


def test_without_variables_it_is_the_demo_encoder_and_wordnet(monkeypatch):
    effect = read_effect({})
    assert effect.before.encoder_flags == {"bert_hub": "demo"} and effect.texts == ("wordnet",) and effect.steps == 600
    assert effect.folder == pathlib.Path("exp/paper_effect/demo_mlm")
    with user_error("TASK_NAME: found 'SICK-R', expected nothing"):
        read_effect({"TASK_NAME": "SICK-R"})
