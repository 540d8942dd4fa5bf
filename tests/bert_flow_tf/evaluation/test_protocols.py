"""A task's scores from its cosines, and undefined ones."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_flow_tf.data.sts_sets import ScoredPairs, SimilarityTask
from bert_flow_tf.evaluation.protocols import agreement, cosines, score_task
from tests.refusals import user_error


def subset(name, gold):
    sentences = [f"sentence {i} of {name}" for i in range(len(gold))]
    return ScoredPairs(name, sentences, [s.upper() for s in sentences], np.asarray(gold, np.float64))


def task(*subsets, metric="spearman", name="sts12"):
    return SimilarityTask(name, "STS-12", metric, "test", "STS/STS12-en-test", list(subsets))


def random_task(sizes, seed):
    rng = np.random.default_rng(seed)
    subsets = [subset(f"set {i}", rng.uniform(0, 5, n)) for i, n in enumerate(sizes)]
    return task(*subsets), [s.gold / 5 + rng.normal(0, 0.5, len(s)) for s in subsets]


def test_three_combinations_of_two_sub_sets():
    # Spearman is 1 on the four pairs and -1 on the two; ranked together, rho = 1 - 6 * sum(d^2) / (n (n^2 - 1)).
    scored = task(subset("four", [1, 2, 3, 4]), subset("two", [5, 6]))
    result = score_task(scored, [np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.6, 0.5])])
    assert result["spearman"]["wmean"] == pytest.approx((4 * 1 + 2 * -1) / 6)
    assert result["spearman"]["mean"] == pytest.approx(0)
    assert result["spearman"]["all"] == pytest.approx(1 - 6 * 2 / (6 * 35))
    assert {name: s["spearman"] for name, s in result["subsets"].items()} == pytest.approx({"four": 1, "two": -1})


def test_every_figure_says_what_it_was_computed_from():
    result = score_task(*random_task([5, 7], seed=0))
    assert list(result["spearman"]) == list(result["pearson"]) == ["wmean", "mean", "all"]
    described = {"title": "STS-12", "metric": "spearman", "split": "test", "source": "STS/STS12-en-test", "pairs": 12}
    assert result.items() >= described.items()
    assert [s["pairs"] for s in result["subsets"].values()] == [5, 7]
    assert json.loads(json.dumps(result)) == result
    alone = score_task(*random_task([8], seed=2))
    assert alone["spearman"] == {"all": alone["subsets"]["set 0"]["spearman"]}


def test_task_with_two_labels_is_scored_by_auc_alone():
    scored = task(subset("qnli", [1, 0, 1, 0]), metric="auc", name="qnli")
    result = score_task(scored, [np.array([0.9, 0.1, 0.4, 0.5])])
    # Three of the four pairs of a 1 and a 0 are in order.
    assert result["auc"] == {"all": 0.75} and "spearman" not in result


def test_plots_get_evenly_spaced_pairs_and_the_cosines_of_all():
    rng = np.random.default_rng(0)
    cosines, gold = rng.uniform(-1, 1, 1379), np.arange(1379.0)
    found = agreement(cosines, gold)
    rows = np.asarray(found["gold"], int)
    assert (rows[0], rows[-1], len(rows)) == (0, 1378, 500) and set(np.diff(rows)) == {2, 3}
    assert found["similarities"] == cosines[rows].round(4).tolist()
    assert (found["mean"], found["std"]) == pytest.approx((cosines.mean(), cosines.std()))
    assert sum(found["counts"]) == 1379
    # A cosine may be above 1 by rounding.
    few = agreement(np.array([-1.0, -0.96, 0.99, 1 + 1e-12]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert few["gold"] == [1, 2, 3, 4]
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


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_embedding_without_a_direction_is_named_by_its_pair(value):
    a, b = np.ones((2, 4, 3))
    b[2:, 1 if value else slice(None)] = value
    found = "with NaN or infinite values" if value else "of norm 0"
    with user_error("sts12, MSRpar: 2 of the 4 second sentences", found, "the first in pair 3"):
        cosines(a, b, "sts12, MSRpar")


@pytest.mark.parametrize("noise", [0, 1e-8])
@pytest.mark.parametrize("metric", ["spearman", "auc"])
def test_constant_similarity_is_named_whatever_its_rounding(noise, metric):
    scored = task(subset("MSRpar", [1, 0, 1]), subset("MSRvid", [0, 1, 1]), metric=metric)
    varied, constant = np.array([0.3, 0.2, 0.1]), 0.25 + noise * np.array([1.0, -1.0, 0.5])
    with user_error("sts12, MSRvid: found 3 cosines that are all 0.25"):
        score_task(scored, [varied, constant])


def test_gold_without_a_correlation_is_named_by_its_sub_set():
    scored = task(subset("MSRpar", [1, 2, 3]), subset("MSRvid", [2, 2, 2]))
    with user_error("sts12, MSRvid: ", "all 3 gold scores are 2"):
        score_task(scored, [np.array([0.3, 0.2, 0.1])] * 2)
