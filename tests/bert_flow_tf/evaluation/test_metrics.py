"""Agreement is measured right, and where it is undefined that is said."""

import math

import numpy as np
import pytest

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation import protocols as metrics


def test_pearson_of_a_worked_example():
    # deviations (-1, 0, 1) and (-2, 1, 1): 3 / sqrt(2 * 6)
    assert metrics.pearson([1, 2, 3], [1, 4, 4]) == pytest.approx(3 / math.sqrt(12), abs=1e-12)


def test_spearman_gives_ties_their_mean_rank():
    # ranks (1, 2, 3) and (1, 2.5, 2.5): 1.5 / sqrt(2 * 1.5)
    assert metrics.spearman([1, 2, 3], [1, 4, 4]) == pytest.approx(1.5 / math.sqrt(3), abs=1e-12)


def test_auc_counts_the_pairs_in_the_right_order():
    # three of the four (positive, negative) pairs are in order
    assert metrics.auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == pytest.approx(0.75, abs=1e-12)


@pytest.mark.parametrize("metric", [metrics.pearson, metrics.spearman, metrics.auc])
@pytest.mark.parametrize(
    ("predictions", "gold", "words"),
    [
        ([1, 2, 3], [0, 1], "3 predictions for 2 gold scores"),
        ([1], [1], "1 predictions for 1 gold scores, expected 2 or more"),
        ([], [], "0 predictions for 0 gold scores"),
        ([1, np.nan], [0, 1], "prediction 2 of 2 is nan"),
        ([1, 2], [np.inf, 1], "gold score 1 of 2 is inf"),
    ],
)
def test_vectors_that_cannot_be_compared(metric, predictions, gold, words):
    with pytest.raises(UserError, match=words):
        metric(predictions, gold)


@pytest.mark.parametrize("metric", [metrics.pearson, metrics.spearman])
def test_correlation_with_a_constant_is_undefined(metric):
    with pytest.raises(UserError, match=r"undefined: all 3 predictions are 0\.5"):
        metric([0.5, 0.5, 0.5], [1, 2, 3])
    with pytest.raises(UserError, match="undefined: all 3 gold scores are 2"):
        metric([1, 2, 3], [2, 2, 2])


def test_auc_of_constant_predictions_is_chance():
    assert metrics.auc([0.5, 0.5, 0.5], [0, 1, 1]) == 0.5


def test_auc_needs_both_labels_and_no_others():
    with pytest.raises(UserError, match="labels 0 and 1, found 1"):
        metrics.auc([1, 2], [1, 1])
    with pytest.raises(UserError, match=r"labels 0 and 1, found 0, 2\.5"):
        metrics.auc([1, 2], [0, 2.5])
