"""A task's scores from its cosines, and undefined ones."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_flow_tf.data.sts_sets import ScoredPairs, SimilarityTask
from bert_flow_tf.evaluation.protocols import agreement, auc, cosines, pearson, score_task, spearman
from tests.refusals import user_error


def subset(name, gold):
    sentences = [f"sentence {i} of {name}" for i in range(len(gold))]
    return ScoredPairs(name, sentences, [s.upper() for s in sentences], np.asarray(gold, np.float64))


def task(*subsets, metric="spearman"):
    return SimilarityTask("sts12", "STS-12", metric, "test", "STS/STS12-en-test", list(subsets))


def test_scores_are_of_sub_sets_by_size_and_of_all():
    # Spearman is 1 on the four pairs and -1 on the two; ranked together, rho = 1 - 6 * sum(d^2) / (n (n^2 - 1)).
    four, two = subset("four", [1, 2, 3, 4]), subset("two", [5, 6])
    result = score_task(task(four, two), [np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.6, 0.5])])
    expected = {"wmean": (4 * 1 + 2 * -1) / 6, "mean": 0, "all": 1 - 6 * 2 / (6 * 35)}
    assert result["spearman"] == pytest.approx(expected) and result["pearson"].keys() == expected.keys()
    assert {name: (s["pairs"], s["spearman"]) for name, s in result["subsets"].items()} == {
        "four": (4, pytest.approx(1)),
        "two": (2, pytest.approx(-1)),
    }
    described = {"title": "STS-12", "metric": "spearman", "split": "test", "source": "STS/STS12-en-test", "pairs": 6}
    assert result.items() >= described.items() and json.loads(json.dumps(result)) == result
    alone = score_task(task(four), [np.array([0.1, 0.2, 0.4, 0.3])])
    assert alone["spearman"] == {"all": alone["subsets"]["four"]["spearman"]}
    result = score_task(task(subset("qnli", [1, 0, 1, 0]), metric="auc"), [np.array([0.9, 0.1, 0.4, 0.5])])
    # Three of the four pairs of a 1 and a 0 are in order.
    assert result["auc"] == {"all": 0.75} and "spearman" not in result


def test_plots_get_spaced_pairs_and_the_cosines_of_all():
    rng = np.random.default_rng(0)
    cosines, gold = rng.uniform(-1, 1, 1379), np.arange(1379.0)
    found = agreement(cosines, gold)
    rows = np.asarray(found["gold"], int)
    assert (rows[0], rows[-1], len(rows)) == (0, 1378, 500) and set(np.diff(rows)) == {2, 3}
    assert found["similarities"] == cosines[rows].round(4).tolist()
    assert (found["mean"], found["std"]) == pytest.approx((cosines.mean(), cosines.std()))
    # A cosine may be above 1 by rounding.
    few = agreement(np.array([-1.0, -0.96, 0.99, 1 + 1e-12]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert (few["counts"][0], few["counts"][-1], sum(few["counts"])) == (2, 2, 4)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 10), st.integers(1, 8), st.floats(1e-3, 1e3), st.integers(0, 1000))
def test_cosine_is_within_one_and_ignores_lengths(n, width, scale, seed):
    a, b = np.random.default_rng(seed).normal(size=(2, n, width)).astype(np.float32)
    found = cosines(a, b, "here")
    assert found.dtype == np.float64
    assert np.abs(found).max() <= 1 + 1e-12
    np.testing.assert_allclose(cosines(a.astype(np.float64) * scale, b, "here"), found, rtol=0, atol=1e-12)
    # To the bit: pairs of like sentences are ties, whichever they are.
    np.testing.assert_array_equal(cosines(a, a, "here"), 1)


@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_embedding_without_a_direction_is_named_by_its_pair(value):
    a, b = np.ones((2, 4, 3))
    b[2:, 1 if value else slice(None)] = value
    found = "with NaN or infinite values" if value else "of norm 0"
    with user_error("sts12, MSRpar: 2 of the 4 second sentences", found, "pair 3"):
        cosines(a, b, "sts12, MSRpar")


VARIED, SAME = [0.3, 0.2, 0.1], [2, 2, 2]


@pytest.mark.parametrize(
    ("metric", "similarities", "gold", "found"),
    [
        ("spearman", [0.25, 0.25, 0.25], [0, 1, 1], "found 3 cosines that are all 0.25"),
        # Cosines within rounding of each other are the same.
        ("auc", [0.25 + 1e-8, 0.25 - 1e-8, 0.25], [0, 1, 1], "found 3 cosines that are all 0.25"),
        ("spearman", VARIED, SAME, "all 3 gold scores are 2"),
        ("auc", VARIED, [1, 1, 1], "found 1"),
        ("auc", VARIED, [0, 2.5, 0], "found 0, 2.5"),
    ],
)
def test_undefined_scores_are_named_by_their_sub_set(metric, similarities, gold, found):
    scored = task(subset("MSRpar", [1, 0, 1]), subset("MSRvid", gold), metric=metric)
    with user_error("sts12, MSRvid: ", found):
        score_task(scored, [np.array(VARIED), np.array(similarities)])


def test_vectors_that_cannot_be_compared_are_named():
    for found, predictions, gold in (
        ("3 predictions for 2 gold scores", [1, 2, 3], [0, 1]),
        ("1 predictions for 1 gold scores", [1], [1]),
        ("prediction 2 of 2 is nan", [1, np.nan], [0, 1]),
        ("gold score 1 of 2 is inf", [1, 2], [np.inf, 1]),
    ):
        for metric in (pearson, spearman, auc):
            with user_error(found):
                metric(predictions, gold)
