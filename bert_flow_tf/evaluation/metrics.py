"""Agreement of predicted similarities with gold scores."""

import numpy as np
import numpy.typing as npt

from bert_flow_tf.errors import UserError


def pearson(predictions: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Return Pearson's correlation of two vectors [n].

    Raises:
      UserError: the lengths differ, n < 2, a value is not finite, or a vector is constant.
    """
    from scipy import stats

    return float(stats.pearsonr(*_checked(predictions, gold, "Pearson's correlation")).statistic)


def spearman(predictions: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Return Spearman's rank correlation of two vectors [n]; ties share their mean rank. Raises as `pearson`."""
    from scipy import stats

    return float(stats.spearmanr(*_checked(predictions, gold, "Spearman's correlation")).statistic)


def auc(predictions: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Return the area under the ROC curve of scores [n] against labels [n] of 0 and 1.

    Raises:
      UserError: as `pearson`, or there are other labels than 0 and 1, or not both.
    """
    from sklearn import metrics

    predictions, gold = _checked(predictions, gold, None)
    if set(gold) != {0, 1}:
        raise UserError(f"AUC needs gold labels 0 and 1, found {', '.join(f'{x:g}' for x in np.unique(gold)[:5])}")
    return float(metrics.roc_auc_score(gold, predictions))


def _checked(predictions: npt.ArrayLike, gold: npt.ArrayLike, correlation: str | None) -> tuple[np.ndarray, np.ndarray]:
    predictions, gold = (np.asarray(values, np.float64).reshape(-1) for values in (predictions, gold))
    if predictions.size != gold.size or gold.size < 2:
        raise UserError(f"{predictions.size} predictions for {gold.size} gold scores, expected 2 or more of each")
    for name, values in (("prediction", predictions), ("gold score", gold)):
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise UserError(f"{name} {bad[0] + 1} of {values.size} is {values[bad[0]]}, expected a finite number")
        if correlation and np.ptp(values) == 0:
            raise UserError(f"{correlation} is undefined: all {values.size} {name}s are {values[0]:g}")
    return predictions, gold
