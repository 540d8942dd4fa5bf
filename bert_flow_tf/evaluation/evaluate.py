"""Score embeddings by cosines, or as features of a logistic regression.

Source: Conneau and Kiela, SentEval, 2018, <https://arxiv.org/abs/1803.05449>, section 3.1: a logistic regression whose
regularisation is chosen by cross-validation or on dev; a pair's features are |u - v| and u * v.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from absl import logging
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.preprocessing import normalize

from bert_flow_tf.data.sts_sets import SimilarityTask
from bert_flow_tf.data.transfer_sets import Example, TransferTask
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.protocols import cosines, score_task

SEED, FOLDS = 1111, 10
# The TF1 code uses this protocol, with SentEval's PyTorch classifier.
ORIGINAL_FOLDS, ORIGINAL_PROTOCOL = 5, "norm 1, 5 folds"
# C, the inverse strength of the regularisation, is one of these; SentEval has another grid for tasks without dev.
_GRID = tuple(2.0**t for t in range(-2, 4))
_GRID_WITHOUT_DEV = tuple(2.0**t for t in range(-1, 6))


def score_tasks(
    encode: Callable[[list[str]], npt.ArrayLike],
    tasks: Sequence[SimilarityTask | TransferTask],
    original_protocol: bool = False,
) -> dict[str, dict]:
    """Return the fields of each task's `results.records.TaskScores`, by name.

    `encode` maps the n distinct sentences of all tasks to embeddings [n, D]; it is called once. `original_protocol`
    scores classification on embeddings of norm 1 in 5 folds, as Li et al.'s code does.

    Raises:
      UserError: `encode` returns values that are not finite, or a score is undefined.
    """
    distinct = list(dict.fromkeys(sentence for task in tasks for sentence in task.sentences))
    embeddings, rows = np.asarray(encode(distinct)), {sentence: row for row, sentence in enumerate(distinct)}

    def embeddings_of(sentences: Sequence[str]) -> np.ndarray:
        return embeddings[[rows[sentence] for sentence in sentences]]

    results = {}
    for task in tasks:
        logging.info("scoring %s", task.title)
        if isinstance(task, TransferTask) and original_protocol:
            name = f"{task.name} ({ORIGINAL_PROTOCOL})"
            results[name] = score_transfer(task, lambda part: normalize(embeddings_of(part)), folds=ORIGINAL_FOLDS)
        elif isinstance(task, TransferTask):
            results[task.name] = score_transfer(task, embeddings_of)
        else:
            sides = ((embeddings_of(s.sentences_a), embeddings_of(s.sentences_b), task.label(s)) for s in task.subsets)
            results[task.name] = score_task(task, [cosines(*side) for side in sides])
    return results


def score_transfer(
    task: TransferTask, embeddings_of: Callable[[Sequence[str]], np.ndarray], *, folds: int = FOLDS
) -> dict[str, Any]:
    """Return the fields of a classification task's `results.records.TaskScores`.

    The regularisation is chosen on `dev`, or by cross-validation on `train` if there is no `dev`. A task that has only
    the part `all` is scored by nested cross-validation. The solver is scikit-learn's with 100 iterations, as in
    SentEval. `pairs` counts the scored examples.

    Raises:
      UserError: a class has fewer examples than folds.
    """
    x = {name: _features(part, embeddings_of) for name, part in task.parts.items()}
    y = {name: np.array([example.label for example in part]) for name, part in task.parts.items()}
    scored = "all" if "all" in x else "test"
    if "dev" not in x:
        least = np.unique(y["all" if "all" in y else "train"], return_counts=True)[1].min()
        if least < folds:
            raise UserError(f"{task.source}: smallest class: found {least} examples, expected {folds} or more")
    split = StratifiedKFold(n_splits=folds, shuffle=True, random_state=SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if scored == "all":
            dev, accuracy = _nested(x["all"], y["all"], split)
        else:
            if "dev" in x:
                dev, best = _best(_GRID, lambda c: _model(c).fit(x["train"], y["train"]).score(x["dev"], y["dev"]))
            else:
                dev, best = _best_in_folds(x["train"], y["train"], _GRID_WITHOUT_DEV, split)
            predicted = _model(best).fit(x["train"], y["train"]).predict(x["test"])
            accuracy = 100 * float(np.mean(predicted == y["test"]))
    about = {"title": task.title, "metric": "accuracy", "split": scored, "source": task.source}
    scores = {"pairs": len(y[scored]), "accuracy": {"all": accuracy / 100}, "dev_accuracy": dev / 100}
    return about | scores | ({"f1": float(f1_score(y["test"], predicted))} if task.reports_f1 else {})


def _features(part: Sequence[Example], embeddings_of: Callable[[Sequence[str]], np.ndarray]) -> np.ndarray:
    columns = [embeddings_of(sentences) for sentences in zip(*(one.sentences for one in part), strict=True)]
    if len(columns) == 1:
        return columns[0]
    u, v = columns
    return np.concatenate([np.abs(u - v), u * v], axis=1)


def _model(c: float) -> LogisticRegression:
    return LogisticRegression(C=c, random_state=SEED)


def _best(grid: Sequence[float], accuracy: Callable[[float], float]) -> tuple[float, float]:
    """Return the best accuracy x100 and the first C that has it."""
    scores = [round(100 * float(accuracy(c)), 2) for c in grid]
    return max(scores), grid[int(np.argmax(scores))]


def _best_in_folds(x: np.ndarray, y: np.ndarray, grid: Sequence[float], folds: StratifiedKFold) -> tuple[float, float]:
    """Return the best mean accuracy x100 over folds, and its C."""
    return _best(grid, lambda c: cross_val_score(_model(c), x, y, cv=folds).mean())


def _nested(x: np.ndarray, y: np.ndarray, folds: StratifiedKFold) -> tuple[float, float]:
    """Return the mean inner and outer accuracy x100 over the folds."""
    found = []
    for a, b in folds.split(x, y):
        best, c = _best_in_folds(x[a], y[a], _GRID, folds)
        found.append((best, round(100 * _model(c).fit(x[a], y[a]).score(x[b], y[b]), 2)))
    dev, test = np.mean(found, axis=0)
    return round(float(dev), 2), round(float(test), 2)
