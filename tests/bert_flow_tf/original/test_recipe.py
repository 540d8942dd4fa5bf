"""The recipe and the paper's effect on a small BERT."""

import contextlib
import io
import json
import pathlib
import re

import matplotlib.image
import numpy as np
import pytest
from scipy import stats

from benchmarks import paper_effect as effect
from bert_flow_tf.original import recipe as run
from bert_flow_tf.sample_data import sample_glue_dir
from tests.bert_flow_tf.small_runs import TINY_WORDS, small_flow_file
from tests.refusals import refused_by, succeeds

ROWS = ("avg", "avg-last-2", "avg + flow", "avg-last-2 + flow")


@pytest.fixture(scope="module")
def root(tmp_path_factory, documented_bert, documented_encoder_dir):
    """A folder with a few pairs, a small BERT and its encoder."""
    root = tmp_path_factory.mktemp("recipe")
    sample = pathlib.Path(sample_glue_dir())
    for path in sample.rglob("*.?sv"):
        # A file of gold scores has no header.
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)[
            : 40 + (path.suffix == ".tsv")
        ]
        copy = root / "glue" / path.relative_to(sample)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("".join(lines), encoding="utf-8")
    (root / "premodels").mkdir()
    (root / "premodels" / "uncased_L-12_H-768_A-12").symlink_to(documented_bert)
    (root / "small").symlink_to(documented_encoder_dir)
    with pytest.MonkeyPatch.context() as patch:
        # TensorFlow traces small flows fast, and data-dependent initialisation shows their effect
        # without training.
        small = {"flow_model_config": small_flow_file(root), "flow_ddi": True}
        patch.setattr(run, "FLOW_FLAGS", run.FLOW_FLAGS | small)
        patch.setattr(effect, "EMBEDDING_TYPES", ("avg",))
        # Between the stages of small models it would only take time.
        patch.setattr(run.gc, "collect", lambda: 0)
        yield root


def printed_by(main, environ):
    """Return the output of a recipe's `main`; it must succeed."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main([], environ) == 0
    return out.getvalue()


def table_of(printed):
    """{row: (Pearson, Spearman)} of the scored rows of the table, as printed."""
    scored = re.findall(r"^(\S.*?) {2,}(-?\d+\.\d\d) +(-?\d+\.\d\d) +[-+\d]", printed, re.MULTILINE)
    return {row: (pearson, spearman) for row, pearson, spearman in scored}


def scores_of(root, folder):
    """(Pearson, Spearman) of a folder's predictions, as printed."""
    gold = np.loadtxt(root / "glue/STS-B/sts-test.csv", delimiter="\t", usecols=4, comments=None)
    cosines = np.loadtxt(folder / "test_results.tsv")
    return tuple(
        f"{100 * score(cosines, gold).statistic:.2f}" for score in (stats.pearsonr, stats.spearmanr)
    )


def test_its_table_holds_the_scores_of_its_predictions(root):
    environ = {
        "BERT_PREMODELS": str(root / "premodels"),
        "GLUE_DIR": str(root / "glue"),
        "RANDOM_SEED": "5",
    }
    environ |= {"OUTPUT_PARENT_DIR": str(root / "exp")}
    printed = printed_by(run.main, environ)
    said = printed.split("\n\n")[0].splitlines()
    assert [line.partition(":")[0] for line in said[:3]] == ["encoder", "data", "output"]
    # A stage is a line.
    assert said[4] == "[2/8] STS-B, avg" and len(said) == 3 + 8
    of_row = {row: root / f"exp/nli_base_5_STS-B_{row.replace(' + ', '_')}" for row in ROWS}
    expected = {f"STS-B, {row}": scores_of(root, folder) for row, folder in of_row.items()}
    assert table_of(printed) == expected
    assert len(set(expected.values())) == len(ROWS)
    assert (root / "exp/export/nli_base_5_STS-B_avg-last-2_flow/1/saved_model.pb").is_file()
    assert printed.endswith(f"SavedModel: {root}/exp/export/nli_base_5_STS-B_avg-last-2_flow\n")
    again = printed_by(run.main, environ)
    assert again.count("\n  done before\n") == 8 and table_of(again) == expected
    # `reproduce` reports the rows of the runs that are there.
    flags = {
        "bert_premodels": root / "premodels",
        "glue_dir": root / "glue",
        "out": root / "exp",
        "seeds": "5,",
    }
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    said = succeeds("reproduce", *arguments, "--nli", "--rows=last2avg,flow-target")
    assert said.count("\n  done before\n") == 4
    runs = json.loads((root / "exp" / "reproduction.json").read_text())["runs"]
    scores = {run["name"]: run["tasks"]["stsb"] for run in runs}
    for name, row in (
        ("last2avg", "STS-B, avg-last-2"),
        ("flow-target", "STS-B, avg-last-2 + flow"),
    ):
        assert f"{100 * scores[name]['by_metric']['spearman']['all']:.2f}" == expected[row][1]


def test_the_effect_has_scores_and_cosines_and_reruns_nothing(root):
    rng, exp = np.random.default_rng(0), root / "effect"
    for name in ("one.txt", "two.txt"):
        (root / name).write_text(
            "".join(f"{' '.join(rng.choice(TINY_WORDS[:25], 6))}\n" for _ in range(40))
        )
    environ = {
        "TEXT_FILES": f"{root}/one.txt {root}/two.txt",
        "STEPS": "4",
        "OUTPUT_PARENT_DIR": str(exp),
    }
    environ |= {"BERT_HUB": str(root / "small"), "GLUE_DIR": str(root / "glue")}
    printed = printed_by(effect.main, environ)
    (picture,) = re.findall(r"^written: (.*)$", printed, re.MULTILINE)
    mlm = picture.split("/")[-2]
    assert re.fullmatch(f"{exp}/small_mlm_[0-9a-f]{{8}}/effect.png", picture)
    assert table_of(printed) == {
        f"{title}, avg{end}": scores_of(
            root, exp / f"{name}_1234_STS-B_avg{end.replace(' + ', '_')}"
        )
        for title, name in (("before", "small"), ("MLM", mlm))
        for end in ("", " + flow")
    }
    cosines = re.findall(
        r"^(?:before|MLM), avg +(-?\d\.\d\d) +(-?\d\.\d\d)$", printed, re.MULTILINE
    )
    assert len(set(cosines)) == 2
    # The picture has two panels.
    height, width, _ = matplotlib.image.imread(picture).shape
    assert 1.5 < width / height < 2.5
    again = printed_by(effect.main, environ)
    assert again.count("\n  done before\n") == 7
    assert printed.rpartition("mean cosine")[2] == again.rpartition("mean cosine")[2]


def test_a_variable_of_the_effect_that_is_wrong_is_named(tmp_path):
    for wrong, found in (
        ({"STEPS": "0"}, "STEPS: found '0'"),
        ({"TEXT_FILES": "none.txt wordnet"}, "none.txt"),
    ):
        environ = {"OUTPUT_PARENT_DIR": str(tmp_path), "BERT_HUB": "demo", **wrong}
        assert found in refused_by(lambda arguments, of=environ: effect.main(arguments, of))
    assert not list(tmp_path.iterdir())
