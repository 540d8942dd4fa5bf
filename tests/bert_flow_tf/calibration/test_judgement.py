"""The judge on embeddings with known answers."""

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_score, roc_auc_score

from bert_flow_tf.calibration.judgement import judge
from bert_flow_tf.tasks.labelled_pairs import checked_pairs
from tests.refusals import user_error


def judged(before, after, scores, metric=None):
    """Judge a map that changes pairs' cosines from `before` to `after`."""
    angles = np.arccos(np.stack([before, after]))
    a = np.tile([1.0, 0, 1, 0], (len(scores), 1))
    b = np.stack([np.cos(angles[0]), np.sin(angles[0]), np.cos(angles[1]), np.sin(angles[1])], 1)
    sides = {"a": a, "b": b}
    return judge(
        lambda names: sides[names[0]],
        lambda u: u[:, :2],
        lambda u: u[:, 2:],
        (["a"] * len(scores), ["b"] * len(scores), list(scores)),
        metric,
    )


def test_graded_scores_are_judged_by_spearman():
    scores = np.linspace(-0.9, 0.9, 40)
    found = judged(np.random.default_rng(0).uniform(-1, 1, 40), scores, scores)
    measured = found.measures["spearman"]
    assert found.claim == "helps"
    assert found.pairs == 40
    assert measured.after == pytest.approx(1)
    assert measured.before < 0.5
    assert measured.low < measured.change < measured.high
    assert str(found).startswith("helps: 40 labelled pairs, Spearman x100 ")
    assert judged(scores, scores, scores).claim == "no clear change"
    assert judged(np.zeros(40), np.zeros(40), scores).decided.change == 0


def test_labels_are_judged_by_auc_and_the_best_f1_of_scikit_learn():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 200)
    before = np.clip(rng.normal(0, 0.3, 200), -0.99, 0.99)
    after = np.clip(before + 0.4 * labels - 0.2, -0.99, 0.99)
    found = judged(before, after, labels)
    assert found.claim == "helps"
    assert found.deciding == ("auc", "f1")
    for side, cosines in zip(found.best_f1, (before, after), strict=True):
        matched = cosines >= side.cosine - 1e-9
        assert side.f1 == pytest.approx(f1_score(labels, matched))
        cuts = np.quantile(cosines, np.linspace(0, 1, 101))
        assert side.f1 >= max(f1_score(labels, cosines >= cut) for cut in cuts) - 1e-9
        # The precision where every equal pair stands among 999 others.
        weights = np.where(labels == 1, 0.001 / labels.mean(), 0.999 / (1 - labels.mean()))
        precision = precision_score(labels, matched, sample_weight=weights)
        assert side.precision_if_rare == pytest.approx(precision)
    assert found.measures["auc"].after == pytest.approx(roc_auc_score(labels, after))
    with user_error("metric: found f1 with graded scores"):
        judged(before, after, labels * 2.0 + before, "f1")
    with user_error("metric: found 'recall', expected spearman, auc, f1"):
        judged(before, after, labels, "recall")


def test_measures_that_disagree_are_named():
    # The map gives up the highest pairs, which decide F1, for order among the low ones.
    labels = np.repeat([1, 0, 1, 0], [60, 40, 60, 140])
    before = np.concatenate([np.full(60, 0.9), np.full(40, 0.5), np.linspace(-0.5, 0.4, 200)])
    after = np.concatenate([np.full(60, 0.9), np.full(40, 0.95), np.linspace(0.4, -0.5, 200)])
    found = judged(before, after, labels)
    assert found.measures["auc"].claim == "helps"
    assert "the measures disagree: Spearman" in str(found) or found.claim == "helps"
    changes = {name: one.change for name, one in found.measures.items()}
    assert bool(found.disagreement) == (min(changes.values()) < 0 < max(changes.values()))


def test_pairs_of_another_shape_are_refused():
    for b, scores, message in (
        (["a1"], [1, 2], "2 and 1 sentences"),
        (["b1"] * 2, [1, 1], "[1.0] as scores"),
        (["b1"] * 2, [1, float("nan")], "[1.0, nan] as scores"),
    ):
        with user_error(f"pairs: found {message}"):
            checked_pairs((["a1", "a2"], b, scores))
