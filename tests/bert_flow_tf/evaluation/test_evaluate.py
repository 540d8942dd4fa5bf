"""SentEval's protocol gives the accuracies of SentEval's own code.

SentEval's `tools/validation.py` with `usepytorch` false, scikit-learn of the lock, 5 folds and seed 1111 gave them.
"""

import numpy as np
import pytest

from bert_flow_tf.data.pair_files import Examples
from bert_flow_tf.data.scored_tasks import ScoredTask
from bert_flow_tf.evaluation.evaluate import score_tasks, score_transfer


def drawn(rng, n, channels, classes, shift):
    y = rng.integers(classes, size=n)
    return rng.normal(size=(n, channels)) + shift * np.eye(max(channels, classes))[y][:, :channels], y


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    sizes = [(150, 2, 0.8), (180, 3, 0.9), (70, 3, 0.9), (160, 2, 0.7), (60, 2, 0.7), (80, 2, 0.7)]
    return [drawn(rng, n, 6, classes, shift) for n, classes, shift in sizes]


def task(title="TREC", **parts):
    """A task with sentences `part/row`, and its embedding function."""
    examples = {name: Examples([f"{name}/{row}" for row in range(len(y))], [], y) for name, (_, y) in parts.items()}

    def embeddings_of(sentences):
        return np.array([parts[name][0][int(row)] for name, row in (sentence.split("/") for sentence in sentences)])

    split = "all" if "all" in parts else "test"
    return ScoredTask("senteval:x", title, "accuracy", split, "folder", examples), embeddings_of


@pytest.mark.parametrize(
    ("parts", "dev", "accuracy", "scored"),
    [
        ({"all": 0}, 67.83, 66.00, 150),
        ({"train": 1, "test": 2}, 55.00, 51.43, 70),
        ({"train": 3, "dev": 4, "test": 5}, 60.00, 70.00, 80),
    ],
)
def test_accuracies_are_those_of_sentevals_code(data, parts, dev, accuracy, scored):
    found = score_transfer(*task(**{name: data[i] for name, i in parts.items()}), folds=5)
    assert {name: round(100 * one["all"], 2) for name, one in found.by_metric.items()} == {
        "accuracy": accuracy,
        "dev_accuracy": dev,
    }
    assert found.pairs == scored and found.metric == "accuracy"


def test_originals_protocol_takes_norm_1_and_5_folds(data):
    train, test = data[4:]
    transfer, embeddings_of = task(train=train, test=test)
    unit = {
        name: (x / np.linalg.norm(x, axis=1, keepdims=True), y) for name, (x, y) in (("train", train), ("test", test))
    }
    expected = score_transfer(*task(**unit), folds=5)
    assert expected.by_metric != score_transfer(transfer, embeddings_of, folds=5).by_metric
    assert score_tasks(embeddings_of, [transfer], original_protocol=True) == {"senteval:x (norm 1, 5 folds)": expected}


def test_features_of_a_pair_are_difference_and_product():
    rng = np.random.default_rng(0)
    vectors = {f"{part}{i}": rng.normal(size=4) for part in ("train", "test") for i in range(600)}
    parts = {}
    for part in ("train", "test"):
        a, b = ([f"{part}{i}" for i in range(start, start + 300)] for start in (0, 300))
        # The class is the sign of a product, which no sum of the two tells.
        labels = [vectors[one][0] * vectors[other][0] > 0 for one, other in zip(a, b, strict=True)]
        parts[part] = Examples(a, b, np.array(labels, float))
    pairs = ScoredTask("senteval:mrpc", "MRPC", "accuracy", "test", "folder", parts)
    found = score_transfer(pairs, lambda sentences: np.array([vectors[one] for one in sentences]), folds=5)
    assert found.by_protocol["all"] > 0.9 and 0.9 < found.by_metric["f1"]["all"] <= 1
