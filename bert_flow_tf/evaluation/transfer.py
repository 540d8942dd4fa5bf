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
from sklearn.model_selection import StratifiedKFold, cross_val_score

from bert_flow_tf.data.transfer_sets import Example, TransferTask
from bert_flow_tf.errors import UserError

SEED, FOLDS = 1111, 10
# Inverse strengths of the regularisation.
_GRID = tuple(2.0**t for t in range(-2, 4))
_GRID_OF_TWO_PARTS = tuple(2.0**t for t in range(-1, 6))


def score_transfer(
    task: TransferTask, embeddings_of: Callable[[Sequence[str]], np.ndarray], *, folds: int = FOLDS
) -> dict[str, Any]:
    """Return the task's accuracy, ready for JSON.

    A task of one part is cross-validated whole, and within each fold; one of `train` and `test` is cross-validated on
    `train`; one with `dev` is chosen there. The solver is scikit-learn's, with its default of 100 iterations, as in
    SentEval.

    Args:
      embeddings_of: function from m sentences to an array [m, D].

    Returns:
      dict of `title`, `metric`, `split`, `source`, `pairs` (examples that are scored), `accuracy` by protocol ("all"),
      `dev_accuracy`, and `f1` where the task reports it.

    Raises:
      UserError: a class has too few examples for so many folds.
    """
    x = {name: _features(part, embeddings_of) for name, part in task.parts.items()}
    y = {name: np.array([example.label for example in part]) for name, part in task.parts.items()}
    scored = "all" if "all" in x else "test"
    if "dev" not in x:
        least = np.unique(y["all" if "all" in y else "train"], return_counts=True)[1].min()
        # Two folds within each of two: of 3 examples, one of the four could have none.
        fewest = 4 if scored == "all" and folds == 2 else folds
        if least < fewest:
            raise UserError(
                f"{task.source}: smallest class: found {least}, expected {fewest} examples or more for {folds} folds"
            )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if scored == "all":
            dev, accuracy = _nested(x["all"], y["all"], folds)
        else:
            if "dev" in x:
                scores = [_percent(_fitted(x["train"], y["train"], c).score(x["dev"], y["dev"])) for c in _GRID]
                dev, best = max(scores), _GRID[int(np.argmax(scores))]
            else:
                dev, best = _chosen(x["train"], y["train"], _GRID_OF_TWO_PARTS, folds)
            predicted = _fitted(x["train"], y["train"], best).predict(x["test"])
            accuracy = 100 * float(np.mean(predicted == y["test"]))
    return {
        "title": task.title,
        "metric": "accuracy",
        "split": scored,
        "source": task.source,
        "pairs": len(y[scored]),
        "accuracy": {"all": accuracy / 100},
        "dev_accuracy": dev / 100,
        **({"f1": float(f1_score(y["test"], predicted))} if task.reports_f1 else {}),
    }


def _features(part: Sequence[Example], embeddings_of: Callable[[Sequence[str]], np.ndarray]) -> np.ndarray:
    columns = [embeddings_of(sentences) for sentences in zip(*(one.sentences for one in part), strict=True)]
    if len(columns) == 1:
        return columns[0]
    u, v = columns
    return np.concatenate([np.abs(u - v), u * v], axis=1)


def _percent(accuracy: float) -> float:
    return round(100 * float(accuracy), 2)


def _fitted(x: np.ndarray, y: np.ndarray, c: float) -> LogisticRegression:
    return LogisticRegression(C=c, random_state=SEED).fit(x, y)


def _folds(n: int) -> StratifiedKFold:
    return StratifiedKFold(n_splits=n, shuffle=True, random_state=SEED)


def _chosen(x: np.ndarray, y: np.ndarray, grid: Sequence[float], folds: int) -> tuple[float, float]:
    """Return the best mean accuracy x100 over the folds, and its value of the grid."""
    models = [LogisticRegression(C=c, random_state=SEED) for c in grid]
    scores = [_percent(cross_val_score(model, x, y, cv=_folds(folds)).mean()) for model in models]
    return max(scores), grid[int(np.argmax(scores))]


def _nested(x: np.ndarray, y: np.ndarray, folds: int) -> tuple[float, float]:
    """Return means over the folds x100: of the best inner accuracy, and of the accuracy on the rest."""
    dev, test = [], []
    for a, b in _folds(folds).split(x, y):
        best, c = _chosen(x[a], y[a], _GRID, folds)
        dev.append(best)
        test.append(_percent(_fitted(x[a], y[a], c).score(x[b], y[b])))
    return round(float(np.mean(dev)), 2), round(float(np.mean(test)), 2)
