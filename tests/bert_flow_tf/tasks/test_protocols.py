"""A task's scores from its cosines, and undefined ones."""

import numpy as np
import pytest

from bert_flow_tf.tasks.pair_files import Examples
from bert_flow_tf.tasks.protocols import score_task
from bert_flow_tf.tasks.scored_tasks import ScoredTask
from tests.refusals import user_error


def subset(name, gold):
    sentences = [f"sentence {i} of {name}" for i in range(len(gold))]
    return name, Examples(sentences, [s.upper() for s in sentences], np.asarray(gold, np.float64))


def task(*subsets, metric="spearman"):
    return ScoredTask("sts12", "STS-12", metric, "test", "STS/STS12-en-test", dict(subsets))


def test_scores_are_of_sub_sets_by_size_and_of_all():
    # Spearman is 1 on the four pairs and -1 on the two; ranked together, rho = 1 - 6 * sum(d^2) /
    # (n (n^2 - 1)).
    four, two = subset("four", [1, 2, 3, 4]), subset("two", [5, 6])
    result = score_task(task(four, two), [np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.6, 0.5])])
    expected = {"wmean": (4 * 1 + 2 * -1) / 6, "mean": 0, "all": 1 - 6 * 2 / (6 * 35)}
    assert (
        result.by_protocol == pytest.approx(expected)
        and result.by_metric["pearson"].keys() == expected.keys()
    )
    assert {
        name: (one.pairs, one.by_metric["spearman"]) for name, one in result.subsets.items()
    } == {
        "four": (4, pytest.approx(1)),
        "two": (2, pytest.approx(-1)),
    }
    described = ("STS-12", "spearman", "test", "STS/STS12-en-test", 6)
    assert (result.title, result.metric, result.split, result.source, result.pairs) == described
    alone = score_task(task(four), [np.array([0.1, 0.2, 0.4, 0.3])])
    assert alone.by_metric == {
        name: {"all": one} for name, one in alone.subsets["four"].by_metric.items()
    }
    result = score_task(
        task(subset("qnli", [1, 0, 1, 0]), metric="auc"), [np.array([0.9, 0.1, 0.4, 0.5])]
    )
    # Three of the four pairs of a 1 and a 0 are in order.
    assert result.by_metric == {"auc": {"all": 0.75}}


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
