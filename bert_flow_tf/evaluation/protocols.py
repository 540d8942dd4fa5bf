"""A task's scores by sub-set and over all sub-sets.

SentEval and the paper (Li et al. 2020, section 4.1) average over sub-sets, weighted by size (`wmean`). Later work, from
SimCSE on (Gao et al. 2021, appendix B), correlates all pairs of a task together (`all`). The two differ by several
points, so every figure names its protocol.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bert_flow_tf.data.sts_sets import SimilarityTask
from bert_flow_tf.errors import UserError

_PLOTTED_PAIRS, _HISTOGRAM_BINS = 500, 40
# Cosines that differ by less are equal up to rounding, because float32 numbers near 1 are 1.2e-7 apart.
_ROUNDING = 1e-6


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


def auc(predictions: npt.ArrayLike, gold: npt.ArrayLike) -> float:
    """Return the area under the ROC curve for labels 0 and 1.

    Raises:
      UserError: as `pearson`, or the labels are not 0 and 1.
    """
    from sklearn import metrics

    predictions, gold = _checked(predictions, gold, None)
    if set(gold) != {0, 1}:
        raise UserError(f"AUC needs gold labels 0 and 1, found {', '.join(f'{x:g}' for x in np.unique(gold)[:5])}")
    return float(metrics.roc_auc_score(gold, predictions))


# The first metric of each is the task's own.
METRICS = {"spearman": {"spearman": spearman, "pearson": pearson}, "auc": {"auc": auc}}


def cosines(embeddings_a: npt.ArrayLike, embeddings_b: npt.ArrayLike, label: str) -> np.ndarray:
    """Return the cosine of each pair of rows, float64 [n].

    Raises:
      UserError: an embedding holds NaN or infinite values, or is zero; the message begins with `label`.
    """
    a, b = np.asarray(embeddings_a), np.asarray(embeddings_b)
    for side, u in (("first", a), ("second", b)):
        for found, bad in (("with NaN or infinite values", ~np.isfinite(u).all(axis=1)), ("of norm 0", ~u.any(axis=1))):
            if bad.any():
                count = f"{bad.sum()} of the {len(u)} {side} sentences have"
                raise UserError(f"{label}: {count} embeddings {found}; see pair {np.argmax(bad) + 1}")
    # A single square root makes the cosine of equal embeddings exactly 1, so that such pairs are ties.
    ab, aa, bb = (np.einsum("nd,nd->n", *sides, dtype=np.float64) for sides in ((a, b), (a, a), (b, b)))
    return ab / np.sqrt(aa * bb)


def score_task(task: SimilarityTask, similarities: Sequence[np.ndarray]) -> dict:
    """Return the fields of `results.records.TaskScores` from each sub-set's similarities."""
    subsets = {
        subset.name: {"pairs": len(subset), **score_pairs(values, subset.gold, task.metric, task.label(subset))}
        for subset, values in zip(task.subsets, similarities, strict=True)
    }
    all_values, gold = np.concatenate(similarities), np.concatenate([subset.gold for subset in task.subsets])
    overall = score_pairs(all_values, gold, task.metric, task.name)
    sizes, figures = [subset["pairs"] for subset in subsets.values()], dict[str, Any]()
    for metric in METRICS[task.metric]:
        values = [subset[metric] for subset in subsets.values()]
        means = {"wmean": float(np.average(values, weights=sizes)), "mean": float(np.mean(values))}
        figures[metric] = (means if len(subsets) > 1 else {}) | {"all": overall[metric]}
    about = {"title": task.title, "metric": task.metric, "split": task.split, "source": task.source}
    return about | {"pairs": sum(sizes)} | figures | {"subsets": subsets, "agreement": agreement(all_values, gold)}


def agreement(similarities: np.ndarray, gold: np.ndarray) -> dict[str, Any]:
    """Return the fields of `results.records.Agreement`."""
    values = np.asarray(similarities, np.float64)
    shown = np.linspace(0, len(values) - 1, min(len(values), _PLOTTED_PAIRS)).round().astype(int)
    counts, _ = np.histogram(values.clip(-1, 1), bins=_HISTOGRAM_BINS, range=(-1, 1))
    plotted = {"similarities": values[shown], "gold": np.asarray(gold, np.float64)[shown]}
    summary = {"mean": float(values.mean()), "std": float(values.std()), "counts": counts.tolist()}
    return {name: array.round(4).tolist() for name, array in plotted.items()} | summary


def score_pairs(similarities: np.ndarray, gold: np.ndarray, metric: str, label: str) -> dict[str, float]:
    """Return the scores of one set of pairs by metric."""
    check_spread(similarities, label)
    try:
        return {name: function(similarities, gold) for name, function in METRICS[metric].items()}
    except UserError as error:
        raise UserError(f"{label}: {error}") from error


def check_spread(similarities: np.ndarray, label: str) -> None:
    """Raise `UserError` if all cosines are equal up to rounding."""
    if len(similarities) > 1 and np.ptp(similarities) < _ROUNDING:
        found = f"{len(similarities)} cosines that are all {similarities[0]:.6g} up to rounding"
        raise UserError(f"{label}: found {found}, for which a correlation is undefined")


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
