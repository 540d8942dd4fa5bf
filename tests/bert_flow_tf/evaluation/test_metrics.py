"""Agreement is measured right, and where it is undefined that is said."""

import math

import numpy as np
import pytest

from bert_flow_tf.evaluation.protocols import auc, pearson, spearman
from tests.refusals import user_error


@pytest.mark.parametrize(
    ("metric", "predictions", "gold", "expected"),
    [
        # The deviations are (-1, 0, 1) and (-2, 1, 1).
        (pearson, [1, 2, 3], [1, 4, 4], 3 / math.sqrt(2 * 6)),
        # Ranks (1, 2, 3) and (1, 2.5, 2.5): ties share their mean rank.
        (spearman, [1, 2, 3], [1, 4, 4], 1.5 / math.sqrt(2 * 1.5)),
        # Three of the four pairs of a 1 and a 0 are in order.
        (auc, [0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], 0.75),
        (auc, [0.5, 0.5, 0.5], [0, 1, 1], 0.5),
    ],
)
def test_metrics_of_worked_examples(metric, predictions, gold, expected):
    assert metric(predictions, gold) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("metrics", "predictions", "gold", "words"),
    [
        ((pearson, spearman, auc), [1, 2, 3], [0, 1], "3 predictions for 2 gold scores"),
        ((pearson, spearman, auc), [1], [1], "1 predictions for 1 gold scores"),
        ((pearson, spearman, auc), [1, np.nan], [0, 1], "prediction 2 of 2 is nan"),
        ((pearson, spearman, auc), [1, 2], [np.inf, 1], "gold score 1 of 2 is inf"),
        ((pearson, spearman), [0.5, 0.5, 0.5], [1, 2, 3], "all 3 predictions are 0.5"),
        ((pearson, spearman), [1, 2, 3], [2, 2, 2], "all 3 gold scores are 2"),
        ((auc,), [1, 2], [1, 1], "found 1"),
        ((auc,), [1, 2], [0, 2.5], "found 0, 2.5"),
    ],
)
def test_vectors_that_cannot_be_compared_are_named(metrics, predictions, gold, words):
    for metric in metrics:
        with user_error(words):
            metric(predictions, gold)
