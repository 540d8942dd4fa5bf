"""The paper's effect on a small BERT and a little text."""

import re

import matplotlib.image
import numpy as np
import pytest
from scipy import stats

from bert_flow_tf.recipe.effect import main
from bert_flow_tf.recipe.run import EMBEDDING_TYPES as KINDS
from tests.bert_flow_tf.recipe.workplace import printed_by, with_small_flow, write_first_pairs
from tests.bert_flow_tf.small_runs import TINY_WORDS
from tests.refusals import refused_by


@pytest.fixture(scope="module")
def environment(tmp_path_factory, documented_encoder_dir):
    root = tmp_path_factory.mktemp("effect")
    write_first_pairs(root / "glue", 40)
    (root / "small").symlink_to(documented_encoder_dir)
    rng = np.random.default_rng(0)
    for name in ("one.txt", "two.txt"):
        (root / name).write_text("".join(f"{' '.join(rng.choice(TINY_WORDS[:25], 6))}\n" for _ in range(40)))
    values = {"TEXT_FILES": f"{root}/one.txt {root}/two.txt", "STEPS": "4", "OUTPUT_PARENT_DIR": str(root / "exp")}
    with with_small_flow(root, BERT_FLOW_CACHE=root / "cache"):
        yield values | {"BERT_HUB": str(root / "small"), "GLUE_DIR": str(root / "glue")}


def test_it_shows_scores_and_cosines_and_reruns_nothing(environment):
    printed = printed_by(main, environment)
    glue, exp = environment["GLUE_DIR"], environment["OUTPUT_PARENT_DIR"]
    (picture,) = re.findall(r"^written: (.*)$", printed, re.MULTILINE)
    mlm = picture.split("/")[-2]
    assert re.fullmatch(f"{exp}/small_mlm_[0-9a-f]{{8}}/effect.png", picture)
    gold = np.loadtxt(f"{glue}/STS-B/sts-test.csv", delimiter="\t", usecols=4, comments=None)
    for title, name in (("before", "small"), ("MLM", mlm)):
        for kind in KINDS:
            for end, flow in (("", ""), (" + flow", "_flow")):
                cosines = np.loadtxt(f"{exp}/{name}_1234_STS-B_{kind}{flow}/test_results.tsv")
                score = 100 * stats.spearmanr(cosines, gold).statistic
                assert re.search(rf"^{title}, {kind}{re.escape(end)} .* {score:.2f} ", printed, re.MULTILINE)
    cosines = re.findall(r"^(?:before|MLM), avg\S* +(-?\d\.\d\d) +(-?\d\.\d\d)$", printed, re.MULTILINE)
    assert len(cosines) == 4 and len(set(cosines)) > 1
    # The picture has two panels.
    height, width, _ = matplotlib.image.imread(picture).shape
    assert 1.5 < width / height < 2.5
    again = printed_by(main, environment)
    assert again.count("\n  done before\n") == 9
    assert printed.rpartition("mean cosine")[2] == again.rpartition("mean cosine")[2]


@pytest.mark.parametrize(
    ("variable", "value", "found"),
    [
        ("STEPS", "0", "STEPS: found '0'"),
        ("TEXT_FILES", "none.txt wordnet", "none.txt"),
        ("RANDOM_SEED", "x", "RANDOM_SEED: found 'x'"),
        ("GLUE_DIR", "none", "none/STS-B"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named(variable, value, found, tmp_path):
    environ = {"OUTPUT_PARENT_DIR": str(tmp_path), "BERT_HUB": "demo", variable: value}
    assert found in refused_by(lambda arguments: main(arguments, environ))
    assert not list(tmp_path.iterdir())
