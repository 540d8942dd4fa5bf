"""Metrics are those of scipy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn_metrics

from bert_flow_tf.vectors.metrics import (
    Cuts,
    auc,
    best_f1,
    pearson,
    spearman,
    spearman_or_zero,
)
from tests.refusals import user_error


def drawn(seed, n):
    """Predictions with ties, and labels 0 and 1 of both kinds."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % 2).astype(np.float64)
    return np.round(rng.normal(size=n) + labels, 1), labels


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 1000), st.integers(3, 40))
def test_scores_are_the_libraries(seed, n):
    predictions, labels = drawn(seed, n)
    gold = labels + np.round(predictions, 0)
    if np.ptp(predictions) and np.ptp(gold):
        assert pearson(predictions, gold) == stats.pearsonr(predictions, gold).statistic
        assert spearman(predictions, gold) == stats.spearmanr(predictions, gold).statistic
    expected = sklearn_metrics.roc_auc_score(labels, predictions)
    assert auc(predictions, labels) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(0, 1000), st.integers(2, 40))
def test_each_cut_is_the_librarys(seed, n):
    predictions, labels = drawn(seed, n)
    cuts = Cuts.of(predictions, labels)
    precision, recall, values = sklearn_metrics.precision_recall_curve(labels, predictions)
    # The library's cuts ascend, and a last point without a cut follows.
    np.testing.assert_array_equal(cuts.values, values[::-1])
    np.testing.assert_allclose(cuts.precision, precision[-2::-1], rtol=1e-12)
    np.testing.assert_allclose(cuts.recall, recall[-2::-1], rtol=1e-12)
    f1 = [sklearn_metrics.f1_score(labels, predictions >= cut) for cut in cuts.values]
    np.testing.assert_allclose(cuts.f1, f1, rtol=1e-12)
    assert best_f1(predictions, labels) == pytest.approx(max(f1), rel=1e-12)


def test_a_constant_side_has_no_correlation():
    varied, same = np.array([0.3, 0.2, 0.1]), np.ones(3)
    assert spearman_or_zero(varied, same) == spearman_or_zero(same, varied) == 0
    assert spearman_or_zero(varied, -varied) == -1
    for correlation, name in ((pearson, "Pearson's"), (spearman, "Spearman's")):
        with user_error(f"{name} correlation is undefined: all 3 gold scores are 1"):
            correlation(varied, same)
    with user_error("AUC needs gold labels 0 and 1, found 0, 2.5"):
        auc(varied, [0, 2.5, 0])


def test_vectors_that_cannot_be_compared_are_named():
    for found, predictions, gold in (
        ("found 3 predictions, expected 2", [1, 2, 3], [0, 1]),
        ("2 or more", [1], [1]),
        ("all of them finite", [1, np.nan], [0, 1]),
        ("all of them finite", [1, 2], [np.inf, 1]),
    ):
        for metric in (pearson, spearman, auc):
            with user_error(found):
                metric(predictions, gold)
