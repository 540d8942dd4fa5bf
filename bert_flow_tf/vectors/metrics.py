"""Scores of predictions against gold scores, or labels 0 and 1."""

import dataclasses

import numpy as np
import numpy.typing as npt

from bert_flow_tf.common.errors import UserError

METRIC_NAMES = {
    "spearman": "Spearman",
    "pearson": "Pearson",
    "auc": "AUC",
    "f1": "best F1",
    "accuracy": "accuracy",
}


def pearson(predictions: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Return Pearson's correlation of two vectors [n].

    Raises:
      UserError: the lengths differ, n < 2, a value is not finite, or a vector is constant.
    """
    from scipy import stats

    return float(stats.pearsonr(*_checked(predictions, gold, "Pearson's correlation")).statistic)


def spearman(predictions: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Return Spearman's rank correlation; ties share their mean rank."""
    from scipy import stats

    return float(stats.spearmanr(*_checked(predictions, gold, "Spearman's correlation")).statistic)


def spearman_or_zero(x: np.ndarray, y: np.ndarray) -> float:
    """Return Spearman's correlation, or 0 if either is constant."""
    return spearman(x, y) if np.ptp(x) and np.ptp(y) else 0.0


def auc(predictions: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Return the area under the ROC curve for labels 0 and 1.

    It is the Mann-Whitney statistic's share of its largest value, so that a bootstrap's thousand
    values do not pass scikit-learn's checks of each.

    Raises:
      UserError: as `pearson`, or the labels are not 0 and 1.
    """
    from scipy import stats

    predictions, gold = _checked(predictions, gold, None)
    if set(gold) != {0, 1}:
        raise UserError(
            "AUC needs gold labels 0 and 1, found "
            f"{', '.join(f'{x:g}' for x in np.unique(gold)[:5])}"
        )
    ranks = stats.rankdata(predictions)
    positives = int(gold.sum())
    statistic = ranks[gold == 1].sum() - positives * (positives + 1) / 2
    return float(statistic / (positives * (gold.size - positives)))


@dataclasses.dataclass(frozen=True)
class Cuts:
    """Predictions of the label 1 from each cut on.

    Attributes:
      values: the different predictions, descending, [k]. A cut there takes all that are as large.
      hits: number of labels 1 that the cut takes, [k].
      taken: number of predictions that the cut takes, [k].
    """

    values: np.ndarray
    hits: np.ndarray
    taken: np.ndarray

    @classmethod
    def of(cls, predictions: np.ndarray, labels: np.ndarray) -> "Cuts":
        """Walk once through predictions [n], the largest first."""
        order = np.argsort(-predictions, kind="stable")
        descending = predictions[order]
        # Equal predictions are all above a cut, or none.
        is_last = np.append(np.diff(descending) != 0, True)
        taken = np.arange(1, len(labels) + 1)
        return cls(descending[is_last], np.cumsum(labels[order])[is_last], taken[is_last])

    @property
    def precision(self) -> np.ndarray:
        return self.hits / self.taken

    @property
    def recall(self) -> np.ndarray:
        return self.hits / self.hits[-1]

    @property
    def f1(self) -> np.ndarray:
        return 2 * self.hits / (self.taken + self.hits[-1])


def best_f1(predictions: np.ndarray, labels: np.ndarray) -> float:
    """Return the largest F1 of any cut, for labels 0 and 1."""
    return float(Cuts.of(predictions, labels).f1.max())


def _checked(
    predictions: npt.ArrayLike, gold: npt.ArrayLike, correlation: str | None
) -> tuple[np.ndarray, np.ndarray]:
    predictions, gold = (
        np.asarray(values, np.float64).reshape(-1) for values in (predictions, gold)
    )
    if predictions.size != gold.size or gold.size < 2 or not np.isfinite(predictions + gold).all():
        found = (
            f"found {predictions.size} predictions, expected {gold.size}, as many as gold scores"
        )
        raise UserError(f"{found}, and 2 or more, all of them finite")
    for name, values in (("prediction", predictions), ("gold score", gold)):
        if correlation and np.ptp(values) == 0:
            raise UserError(
                f"{correlation} is undefined: all {values.size} {name}s are {values[0]:g}"
            )
    return predictions, gold
