"""Embeddings as features of a logistic regression, by SentEval's protocol.

Source: Conneau and Kiela, SentEval, 2018, <https://arxiv.org/abs/1803.05449>, section 3.1: a logistic regression on
frozen embeddings, its regularisation chosen by cross-validation or on the dev split; of a pair, the features are
|u - v| and u * v.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

from bert_flow_tf.data.transfer_sets import Example, TransferTask
from bert_flow_tf.errors import UserError

SEED, FOLDS = 1111, 10
# Inverse strengths of the regularisation.
_GRID = tuple(2.0**t for t in range(-2, 4))
_GRID_OF_TWO_PARTS = tuple(2.0**t for t in range(-1, 6))


def score_transfer(
    task: TransferTask, embeddings_of: Callable[[list[str]], np.ndarray], *, folds: int = FOLDS
) -> dict[str, Any]:
    """The task's accuracy, as plain values to be written as JSON.

    A task of one part is cross-validated whole, and within each fold; one of `train` and `test` is cross-validated on
    `train`; one with `dev` is chosen there. The solver is scikit-learn's, with its default of 100 iterations, as in
    SentEval.

    Args:
      embeddings_of: function from m sentences to an array [m, D].
      folds: of the cross-validation.

    Returns:
      dict of `title`, `metric`, `split`, `source`, `pairs` (examples that are scored), `accuracy` by protocol ("all"),
      `dev_accuracy`, and `f1` where the task reports it.

    Raises:
      UserError: a class has too few examples for so many folds.
    """
    x = {name: _features(part, embeddings_of) for name, part in task.parts.items()}
    y = {name: np.array([example.label for example in part]) for name, part in task.parts.items()}
    validated = "all" if "all" in x else "train"
    if "dev" not in x:
        least = np.unique(y[validated], return_counts=True)[1].min()
        # Two folds within each of two: of 3 examples, one of the four could have none.
        fewest = 4 if validated == "all" and folds == 2 else folds
        if least < fewest:
            raise UserError(
                f"{task.source}: smallest class: found {least}, expected {fewest} examples or more for {folds} folds"
            )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        predicted, f1 = None, None
        if validated == "all":
            dev, accuracy = _nested(x["all"], y["all"], folds)
        elif "dev" in x:
            scores = [round(100 * _fitted(x["train"], y["train"], c).score(x["dev"], y["dev"]), 2) for c in _GRID]
            dev, best = max(scores), _GRID[int(np.argmax(scores))]
            predicted = _fitted(x["train"], y["train"], best).predict(x["test"])
        else:
            dev, best = _chosen(x["train"], y["train"], _GRID_OF_TWO_PARTS, folds)
            predicted = _fitted(x["train"], y["train"], best).predict(x["test"])
    if predicted is not None:
        accuracy = 100 * float(np.mean(predicted == y["test"]))
    if task.reports_f1:
        f1 = float(f1_score(y["test"], predicted))
    scored = "all" if validated == "all" else "test"
    return {
        "title": task.title,
        "metric": "accuracy",
        "split": scored,
        "source": task.source,
        "pairs": len(y[scored]),
        "accuracy": {"all": accuracy / 100},
        "dev_accuracy": dev / 100,
        **({} if f1 is None else {"f1": f1}),
    }


def _features(part: Sequence[Example], embeddings_of: Callable[[list[str]], np.ndarray]) -> np.ndarray:
    columns = [embeddings_of(list(sentences)) for sentences in zip(*(one.sentences for one in part), strict=True)]
    if len(columns) == 1:
        return columns[0]
    u, v = columns
    return np.concatenate([np.abs(u - v), u * v], axis=1)


def _fitted(x: np.ndarray, y: np.ndarray, c: float) -> LogisticRegression:
    return LogisticRegression(C=c, random_state=SEED).fit(x, y)


def _chosen(x: np.ndarray, y: np.ndarray, grid: Sequence[float], folds: int) -> tuple[float, float]:
    """The best mean accuracy x100 over the folds, and its value of the grid."""
    splits = list(StratifiedKFold(n_splits=folds, shuffle=True, random_state=SEED).split(x, y))
    scores = [
        round(100 * float(np.mean([_fitted(x[a], y[a], c).score(x[b], y[b]) for a, b in splits])), 2) for c in grid
    ]
    return max(scores), grid[int(np.argmax(scores))]


def _nested(x: np.ndarray, y: np.ndarray, folds: int) -> tuple[float, float]:
    """Means over the folds x100: of the best inner accuracy, and of the accuracy on what was left out."""
    dev, test = [], []
    for a, b in StratifiedKFold(n_splits=folds, shuffle=True, random_state=SEED).split(x, y):
        best, c = _chosen(x[a], y[a], _GRID, folds)
        dev.append(best)
        test.append(round(100 * _fitted(x[a], y[a], c).score(x[b], y[b]), 2))
    return round(float(np.mean(dev)), 2), round(float(np.mean(test)), 2)
