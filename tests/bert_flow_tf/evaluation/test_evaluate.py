"""Several tasks are scored from one pass over their sentences."""

import zlib

import numpy as np
import pytest
from scipy import stats

from bert_flow_tf.data.sts_sets import ScoredPairs, SimilarityTask
from bert_flow_tf.evaluation.evaluate import score_tasks
from tests.refusals import user_error


def hashed(sentences):
    """Embeddings [n, 6] that depend on the sentence alone."""
    return np.stack(
        [np.random.default_rng(zlib.crc32(s.encode())).normal(size=6).astype(np.float32) for s in sentences]
    )


def make_tasks():
    first = ScoredPairs("boats", ["a", "b", "c", "a"], ["b", "d", "a", "e"], np.array([1.0, 2.0, 3.0, 0.5]))
    second = ScoredPairs("trains", ["a", "x", "long one"], ["c", "y", "z"], np.array([2.0, 1.0, 4.0]))
    third = ScoredPairs("stsb", ["x", "a", "b"], ["b", "z", "y"], np.array([0.0, 2.0, 5.0]))
    return [
        SimilarityTask("sts12", "STS-12", "spearman", "test", "here", [first, second]),
        SimilarityTask("stsb", "STS-B", "spearman", "test", "there", [third]),
    ]


def test_figures_are_those_of_each_pair_encoded_once():
    tasks, calls = make_tasks(), []
    results = score_tasks(lambda sentences: calls.append(sentences) or hashed(sentences), tasks)
    assert [sorted(call) for call in calls] == [["a", "b", "c", "d", "e", "long one", "x", "y", "z"]]
    assert list(results) == ["sts12", "stsb"]
    for task in tasks:
        for subset in task.subsets:
            a, b = (hashed(s).astype(np.float64) for s in (subset.sentences_a, subset.sentences_b))
            cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
            found = results[task.name]["subsets"][subset.name]
            assert found["spearman"] == pytest.approx(stats.spearmanr(cosine, subset.gold).statistic)
            assert found["pearson"] == pytest.approx(stats.pearsonr(cosine, subset.gold).statistic)


@pytest.mark.parametrize("shape", [(3,), (2, 4), (9, 2, 2)])
def test_encoder_without_a_row_for_each_sentence_is_refused(shape):
    with user_error(f"found shape {list(shape)}, expected [9, D]"):
        score_tasks(lambda sentences: np.zeros(shape), make_tasks())


def test_nan_embeddings_are_refused_with_task_and_sub_set():
    with user_error("sts12, trains: 1 of the 3 second sentences"):
        score_tasks(lambda s: np.where(np.array([[one == "y"] for one in s]), np.nan, hashed(s)), make_tasks())
