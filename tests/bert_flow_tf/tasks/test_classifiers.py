"""SentEval's transfer protocols against plain loops with scikit-learn."""

import functools
from typing import NamedTuple

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

from bert_flow_tf.tasks import classifiers as transfer
from bert_flow_tf.tasks.pair_files import Examples
from bert_flow_tf.tasks.protocols import score_tasks
from bert_flow_tf.tasks.scored_tasks import ScoredTask
from tests.refusals import user_error

FOLDS = StratifiedKFold(5, shuffle=True, random_state=1111)


def examples(n, seed, *, classes=2, is_pairs=False):
    """Return n sentences, or pairs, whose class is their number modulo `classes`."""
    a = [f"{seed} {i}" for i in range(n)]
    b = [f"{seed} {i} again" for i in range(n)] if is_pairs else []
    return Examples(a, b, np.arange(n, dtype=float) % classes)


def transfer_task(**parts):
    split = "all" if "all" in parts else "test"
    return ScoredTask("mr", "MR", "accuracy", split, "MR", parts)


def embed(sentences):
    """Return embeddings of different norms that tell something about the class."""
    rows = []
    for sentence in sentences:
        seed, number = map(int, sentence.split()[:2])
        row = np.random.default_rng([seed, number, len(sentence)]).normal(size=6)
        row[number % 3] += 0.8
        rows.append(row * (1 + number % 4))
    return np.array(rows, np.float32)


def unit(sentences):
    u = embed(sentences).astype(np.float64)
    return u / np.sqrt((u**2).sum(axis=1, keepdims=True))


class OneVsRest(NamedTuple):
    """A model of each class, in the classes' order."""

    classes: np.ndarray
    models: list[LogisticRegression]

    def predict(self, x):
        values = [model.decision_function(x) for model in self.models]
        return self.classes[np.argmax(values, axis=0)]

    def score(self, x, y):
        return np.mean(self.predict(x) == y)


def fitted(x, y, c):
    """Fit models as SentEval's scikit-learn did."""
    new = functools.partial(LogisticRegression, C=c, solver="liblinear", random_state=1111)
    classes = np.unique(y)
    if len(classes) == 2:
        return new().fit(x, y)
    return OneVsRest(classes, [new().fit(x, y == one) for one in classes])


def best_of_folds(x, y, powers):
    """Return the best C = 2^power of five folds, and its accuracy."""
    best = (-1, None, None)
    for power in powers:
        accuracy = np.mean(
            [fitted(x[a], y[a], 2.0**power).score(x[b], y[b]) for a, b in FOLDS.split(x, y)]
        )
        # Accuracies of two decimals: an equal one with a larger C does not count.
        if round(100 * accuracy, 2) > best[0]:
            best = (round(100 * accuracy, 2), 2.0**power, accuracy)
    return best[1:]


def score(task):
    return score_tasks(embed, [task])["mr"]


def test_a_task_without_splits_is_scored_by_nested_folds():
    part = examples(150, 1)
    x, y = unit(part.sentences_a), part.labels
    accuracies = []
    chosen = []
    for train, test in FOLDS.split(x, y):
        chosen.append(best_of_folds(x[train], y[train], range(-2, 4)))
        model = fitted(x[train], y[train], chosen[-1][0])
        accuracies.append(model.score(x[test], y[test]))
    found = score(transfer_task(all=part))
    assert len({c for c, _ in chosen}) > 1, "one C would not tell the folds apart"
    assert found.penalties == [c for c, _ in chosen]
    assert found.by_metric == {"accuracy": {"all": pytest.approx(np.mean(accuracies))}}
    assert found.dev_accuracy == pytest.approx(np.mean([accuracy for _, accuracy in chosen]))
    assert (found.metric, found.split, found.pairs, found.subsets) == ("accuracy", "all", 150, {})


def test_folds_of_train_choose_c_where_there_is_no_dev():
    train, test = examples(120, 2, classes=6), examples(40, 3, classes=6)
    x, y = unit(train.sentences_a), train.labels
    c, accuracy = best_of_folds(x, y, range(-1, 6))
    found = score(transfer_task(train=train, test=test))
    expected = fitted(x, y, c).score(unit(test.sentences_a), test.labels)
    assert found.by_metric == {"accuracy": {"all": pytest.approx(expected)}}
    assert (found.penalties, found.dev_accuracy) == ([c], pytest.approx(accuracy))
    assert (found.split, found.pairs) == ("test", 40)


def test_pairs_are_scored_by_difference_and_product_with_f1():
    train, test = examples(100, 4, is_pairs=True), examples(50, 5, is_pairs=True)

    def columns(part):
        u, v = unit(part.sentences_a), unit(part.sentences_b)
        return np.hstack([abs(u - v), u * v])

    c, _ = best_of_folds(columns(train), train.labels, range(-1, 6))
    predicted = fitted(columns(train), train.labels, c).predict(columns(test))
    found = score(transfer_task(train=train, test=test))
    assert found.penalties == [c]
    assert found.by_metric == {
        "accuracy": {"all": pytest.approx(np.mean(predicted == test.labels))},
        "f1": {"all": pytest.approx(f1_score(test.labels, predicted))},
    }


def test_dev_chooses_c_where_there_is_one():
    train, dev, test = (examples(n, seed) for n, seed in ((80, 6), (50, 7), (40, 8)))
    x, y = unit(train.sentences_a), train.labels
    models = {c: fitted(x, y, c) for c in (0.25, 0.5, 1, 2, 4, 8)}
    on_dev = {c: model.score(unit(dev.sentences_a), dev.labels) for c, model in models.items()}
    best = max(on_dev, key=on_dev.get)
    found = score(transfer_task(train=train, dev=dev, test=test))
    expected = models[best].score(unit(test.sentences_a), test.labels)
    assert len(set(on_dev.values())) > 1
    assert found.by_metric == {"accuracy": {"all": pytest.approx(expected)}}
    assert (found.penalties, found.dev_accuracy) == ([best], pytest.approx(on_dev[best]))


@pytest.mark.parametrize(("scale", "of_folds", "of_train"), [(0.001, 0.25, 0.5), (0.1, 8.0, 32.0)])
def test_c_goes_from_sentevals_lowest_to_its_highest(scale, of_folds, of_train):
    # The smaller the channel that tells, the larger the C that uses it; without any, all are equal.
    classes = (np.arange(400) % 4 == 0).astype(float)
    signal = classes + 0.3 * np.random.default_rng(0).normal(size=400)
    embeddings = np.stack([np.ones(400), scale * signal], axis=1)
    part = transfer.Part(transfer.features(embeddings), classes)
    for parts, expected in (
        ({"all": part}, [of_folds] * 5),
        ({"train": part, "dev": part, "test": part}, [of_folds]),
        ({"train": part, "test": part}, [of_train]),
    ):
        assert transfer.classify(parts, is_pairs=False).penalties == expected


def test_accuracies_equal_in_two_decimals_take_the_smallest_c():
    assert transfer._best([1, 2, 4], [0.5, 0.70001, 0.70003]) == (2, 0.70001)
    assert transfer._best([1, 2, 4], [0.5, 0.7001, 0.7003]) == (4, 0.7003)


@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_a_sentence_without_a_direction_is_counted(value):
    part = examples(20, 9)

    def encode(sentences):
        u = embed(sentences)
        u[[3, 5]] = value
        return u

    with user_error("mr, all: 2 of the 20 sentences have embeddings that are zero or not finite"):
        score_tasks(encode, [transfer_task(all=part)])


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ({"all": examples(12, 1)}, "mr: found 6 of class 0 in all, expected 7 or more"),
        (
            {"train": examples(13, 1, classes=3), "test": examples(9, 2)},
            "mr: found 4 of class 1 in train, expected 5 or more",
        ),
        (
            {"train": examples(13, 1, classes=1), "test": examples(9, 2)},
            "mr: found sentences of one class in train",
        ),
    ],
)
def test_too_few_sentences_of_a_class_are_named_before_work(parts, found):
    with user_error(found):
        score_tasks(lambda sentences: pytest.fail("encoded"), [transfer_task(**parts)])


def test_the_fewest_sentences_that_are_enough_are_scored():
    assert score(transfer_task(all=examples(14, 1))).pairs == 14
    parts = {"train": examples(10, 2), "test": examples(4, 3)}
    assert score(transfer_task(**parts)).pairs == 4
