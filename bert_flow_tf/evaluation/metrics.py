"""Agreement of predicted similarities with gold scores."""

import numpy as np
import numpy.typing as npt

from bert_flow_tf.errors import UserError


def pearson(predictions: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Pearson's correlation of two vectors [n].

    Raises:
      UserError: the lengths differ, n < 2, a value is not finite, or a vector is constant.
    """
    from scipy import stats

    return float(stats.pearsonr(*_checked(predictions, gold, "Pearson's correlation")).statistic)


def spearman(predictions: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Spearman's rank correlation of two vectors [n]; ties share their mean rank. Raises as `pearson`."""
    from scipy import stats

    return float(stats.spearmanr(*_checked(predictions, gold, "Spearman's correlation")).statistic)


def auc(predictions: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Area under the ROC curve of scores [n] against labels [n] of 0 and 1.

    Raises:
      UserError: the lengths differ, n < 2, a value is not finite, a label is neither 0 nor 1, or all labels are equal.
    """
    from sklearn import metrics

    predictions, gold = _checked(predictions, gold, None)
    others = gold[(gold != 0) & (gold != 1)]
    if others.size:
        raise UserError(f"AUC needs gold labels 0 and 1, found {others[0]:g}")
    if np.ptp(gold) == 0:
        raise UserError(f"AUC is undefined: all {gold.size} gold labels are {gold[0]:g}")
    return float(metrics.roc_auc_score(gold, predictions))


def _checked(predictions: npt.ArrayLike, gold: npt.ArrayLike, correlation: str | None) -> tuple[np.ndarray, np.ndarray]:
    predictions = np.asarray(predictions, np.float64).reshape(-1)
    gold = np.asarray(gold, np.float64).reshape(-1)
    if predictions.size != gold.size:
        raise UserError(f"{predictions.size} predictions for {gold.size} gold scores, expected equal numbers")
    if predictions.size < 2:
        raise UserError(f"{predictions.size} predictions found, at least 2 expected")
    for name, values in (("prediction", predictions), ("gold score", gold)):
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise UserError(f"{name} {bad[0] + 1} of {values.size} is {values[bad[0]]}, expected a finite number")
        if correlation and np.ptp(values) == 0:
            raise UserError(f"{correlation} is undefined: all {values.size} {name}s are {values[0]:g}")
    return predictions, gold
