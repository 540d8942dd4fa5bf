"""SentEval's transfer protocol: a logistic regression on frozen embeddings.

The inverse penalty C is a power of two, the one with the best accuracy on data that are neither
trained nor tested on. Three protocols, by the parts that a task has:

- no parts: 5 outer folds are tested in turn, and 5 inner folds of the other four choose C;
- train and test: 5 folds of train choose C;
- train, dev and test: dev chooses C.

Embeddings are divided by their norm, as in the original. A pair's features are |u - v| and u * v.

Source: Conneau and Kiela, SentEval, 2018, <https://arxiv.org/abs/1803.05449>, section 3, and its
classifiers without PyTorch: scikit-learn's `LogisticRegression`, whose solver was liblinear, one
class against the rest.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.tasks.transfer import ALL
from bert_flow_tf.vectors.similarities import normalized

if TYPE_CHECKING:
    from sklearn.model_selection import StratifiedKFold
    from sklearn.multiclass import OneVsRestClassifier

_SEED = 1111
FOLDS = 5
_PENALTIES = tuple(2.0**power for power in range(-2, 4))
# SentEval looks for weaker penalties where the folds are those of train.
_PENALTIES_BY_TRAIN = tuple(2.0**power for power in range(-1, 6))


class Part(NamedTuple):
    """The features [n, D] and the classes [n] of a part."""

    features: np.ndarray
    classes: np.ndarray

    def take(self, rows: np.ndarray) -> "Part":
        return Part(self.features[rows], self.classes[rows])


class Classified(NamedTuple):
    """The scores of a transfer task.

    Attributes:
      by_metric: "accuracy", the mean over outer folds if there are any, and "f1" of class 1 for
        pairs.
      dev_accuracy: of the chosen C, on the data that chose it.
      penalties: the chosen C, one per outer fold if there are any.
    """

    by_metric: dict[str, float]
    dev_accuracy: float
    penalties: list[float]


class _Choice(NamedTuple):
    penalty: float
    accuracy: float


def classify(parts: Mapping[str, Part], *, is_pairs: bool) -> Classified:
    """Return a task's scores by the protocol of its parts."""
    if ALL in parts:
        return _classify_outer_folds(parts[ALL])
    train = parts["train"]
    test = parts["test"]
    if "dev" in parts:
        choice = _choose_by_dev(train, parts["dev"])
    else:
        choice = _choose_by_folds(train, _PENALTIES_BY_TRAIN)
    model = _fitted(train, choice.penalty)
    scores = {"accuracy": _accuracy(model, test)}
    if is_pairs:
        from sklearn.metrics import f1_score

        scores["f1"] = float(f1_score(test.classes, model.predict(test.features)))
    return Classified(scores, choice.accuracy, [choice.penalty])


def check_classes(parts: Mapping[str, np.ndarray], label: str) -> None:
    """Raise `UserError` unless each class [n] is in each fold.

    Args:
      parts: the classes by part.
    """
    learned = ALL if ALL in parts else "train"
    # An outer fold takes a fifth, and each of 5 inner folds needs one of what is left.
    least = FOLDS + 2 if learned == ALL else 1 if "dev" in parts else FOLDS
    names, counts = np.unique(parts[learned], return_counts=True)
    if len(names) < 2:
        raise UserError(f"{label}: found sentences of one class in {learned}, expected two or more")
    if counts.min() < least:
        found = f"{counts.min()} of class {names[np.argmin(counts)]:g} in {learned}"
        raise UserError(f"{label}: found {found}, expected {least} or more for {FOLDS} folds")


def features(embeddings_a: np.ndarray, embeddings_b: np.ndarray | None = None) -> np.ndarray:
    """Return a classifier's features of sentences, or of pairs, float64."""
    a = normalized(np.asarray(embeddings_a, np.float64))
    if embeddings_b is None:
        return a
    b = normalized(np.asarray(embeddings_b, np.float64))
    return np.concatenate([np.abs(a - b), a * b], axis=1)


def _classify_outer_folds(part: Part) -> Classified:
    """Test each fold with the C that folds of the others choose."""
    accuracies = []
    choices = []
    for train_rows, test_rows in _folds().split(part.features, part.classes):
        train = part.take(train_rows)
        choice = _choose_by_folds(train, _PENALTIES)
        model = _fitted(train, choice.penalty)
        accuracies.append(_accuracy(model, part.take(test_rows)))
        choices.append(choice)
    return Classified(
        by_metric={"accuracy": float(np.mean(accuracies))},
        dev_accuracy=float(np.mean([choice.accuracy for choice in choices])),
        penalties=[choice.penalty for choice in choices],
    )


def _choose_by_folds(train: Part, penalties: Sequence[float]) -> _Choice:
    """Choose C by the mean accuracy of folds of train."""
    folds = list(_folds().split(train.features, train.classes))
    accuracies = []
    for penalty in penalties:
        of_folds = [
            _accuracy(_fitted(train.take(rows), penalty), train.take(held_out))
            for rows, held_out in folds
        ]
        accuracies.append(float(np.mean(of_folds)))
    return _best(penalties, accuracies)


def _choose_by_dev(train: Part, dev: Part) -> _Choice:
    accuracies = [_accuracy(_fitted(train, penalty), dev) for penalty in _PENALTIES]
    return _best(_PENALTIES, accuracies)


def _best(penalties: Sequence[float], accuracies: Sequence[float]) -> _Choice:
    """Return the best C; of equal ones, the smallest.

    Accuracies are equal if their percentages agree in two decimals, as in SentEval.
    """
    best = int(np.argmax(np.round(100 * np.array(accuracies), 2)))
    return _Choice(penalties[best], accuracies[best])


def _folds() -> "StratifiedKFold":
    from sklearn.model_selection import StratifiedKFold

    return StratifiedKFold(n_splits=FOLDS, shuffle=True, random_state=_SEED)


def _fitted(train: Part, penalty: float) -> "OneVsRestClassifier":
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    model = LogisticRegression(C=penalty, solver="liblinear", random_state=_SEED)
    # With two classes, this fits one model.
    return OneVsRestClassifier(model).fit(train.features, train.classes)


def _accuracy(model: "OneVsRestClassifier", part: Part) -> float:
    return float(model.score(part.features, part.classes))
