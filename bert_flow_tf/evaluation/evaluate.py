"""Score embeddings by cosines, or as features of a logistic regression.

Source: Conneau and Kiela, SentEval, 2018, <https://arxiv.org/abs/1803.05449>, section 3.1: a logistic regression whose
regularisation is chosen by cross-validation or on dev; a pair's features are |u - v| and u * v.
"""

import warnings
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from absl import logging
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import BaseCrossValidator, GridSearchCV, PredefinedSplit, StratifiedKFold, cross_validate
from sklearn.preprocessing import normalize

from bert_flow_tf.data.pair_files import Examples
from bert_flow_tf.data.scored_tasks import ScoredTask
from bert_flow_tf.evaluation.protocols import TaskScores, cosines, score_task

_SEED, _FOLDS = 1111, 10
# The TF1 code uses this protocol, with SentEval's PyTorch classifier.
_ORIGINAL_FOLDS, _ORIGINAL_PROTOCOL = 5, "norm 1, 5 folds"
# C, the inverse strength of the regularisation, is one of these; SentEval has another grid for tasks without dev.
_GRID = tuple(2.0**t for t in range(-2, 4))
_GRID_WITHOUT_DEV = tuple(2.0**t for t in range(-1, 6))


def score_tasks(
    encode: Callable[[list[str]], npt.ArrayLike], tasks: Sequence[ScoredTask], original_protocol: bool = False
) -> dict[str, TaskScores]:
    """Return each task's scores by name.

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
        if task.metric != "accuracy":
            parts = task.parts.items()
            sides = ((name, embeddings_of(one.sentences_a), embeddings_of(one.sentences_b)) for name, one in parts)
            results[task.name] = score_task(task, [cosines(a, b, task.label(name)) for name, a, b in sides])
        elif original_protocol:
            name = f"{task.name} ({_ORIGINAL_PROTOCOL})"
            results[name] = score_transfer(task, lambda part: normalize(embeddings_of(part)), folds=_ORIGINAL_FOLDS)
        else:
            results[task.name] = score_transfer(task, embeddings_of)
    return results


def score_transfer(
    task: ScoredTask, embeddings_of: Callable[[Sequence[str]], np.ndarray], *, folds: int = _FOLDS
) -> TaskScores:
    """Return a classification task's scores: "accuracy", "dev_accuracy" and, for MRPC, "f1".

    The regularisation is chosen on `dev`, or by cross-validation on `train` if there is no `dev`. A task that has only
    the part `all` is scored by nested cross-validation. The solver is scikit-learn's with 100 iterations, as in
    SentEval. `pairs` counts the scored examples.
    """
    x = {name: _features(part, embeddings_of) for name, part in task.parts.items()}
    y = {name: part.labels.astype(int) for name, part in task.parts.items()}
    split = StratifiedKFold(n_splits=folds, shuffle=True, random_state=_SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if task.split == "all":
            found = cross_validate(_search(_GRID, split), x["all"], y["all"], cv=split, return_estimator=True)
            searches, accuracy = found["estimator"], float(found["test_score"].mean())
        else:
            if "dev" in x:
                fold = PredefinedSplit(np.repeat([-1, 0], [len(y["train"]), len(y["dev"])]))
                both = (np.concatenate([parts["train"], parts["dev"]]) for parts in (x, y))
                searches = [_search(_GRID, fold).fit(*both)]
            else:
                searches = [_search(_GRID_WITHOUT_DEV, split).fit(x["train"], y["train"])]
            classifier = LogisticRegression(**searches[0].best_params_, random_state=_SEED)
            predicted = classifier.fit(x["train"], y["train"]).predict(x["test"])
            accuracy = float(np.mean(predicted == y["test"]))
    dev = float(np.mean([one.cv_results_["mean_test_score"][one.best_index_] for one in searches]))
    scores = {"accuracy": {"all": accuracy}, "dev_accuracy": {"all": dev}}
    if task.title == "MRPC":
        scores["f1"] = {"all": float(f1_score(y["test"], predicted))}
    names = {"title": task.title, "metric": task.metric, "split": task.split, "source": task.source}
    return TaskScores(**names, pairs=len(y[task.split]), by_metric=scores, subsets={})


def _features(part: Examples, embeddings_of: Callable[[Sequence[str]], np.ndarray]) -> np.ndarray:
    u = embeddings_of(part.sentences_a)
    if not part.sentences_b:
        return u
    v = embeddings_of(part.sentences_b)
    return np.concatenate([np.abs(u - v), u * v], axis=1)


def _search(grid: Sequence[float], folds: BaseCrossValidator) -> GridSearchCV:
    """Return a search for the C of the best mean accuracy."""

    def best(results: dict[str, np.ndarray]) -> int:
        # SentEval rounds before it compares, and takes the first of equals.
        return int(np.round(results["mean_test_score"], 4).argmax())

    return GridSearchCV(LogisticRegression(random_state=_SEED), {"C": grid}, cv=folds, refit=best)
