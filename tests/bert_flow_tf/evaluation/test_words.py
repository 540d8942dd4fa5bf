"""Frequency ranks, and Table 1's means by rank."""

import sys

import numpy as np
import pytest

from bert_flow_tf.evaluation import words
from tests.refusals import user_error


def test_ranks_are_of_whole_words_by_frequency():
    vocabulary = ["[PAD]", "dog", "##s", "the", "12", ".", "zyx", "[unused1]", "Cat"]
    frequencies = {"the": 0.05, "dog": 1e-4, "cat": 1e-4, "s": 0.1, "12": 0.1, ".": 0.2, "zyx": 0}
    assert words.frequency_ranks(vocabulary, frequencies).tolist() == [0, 2, 0, 1, 0, 0, 0, 0, 3]
    with user_error("none of its 2 pieces"):
        words.frequency_ranks(["[PAD]", "w1"], frequencies)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    with user_error("pip install 'bert-flow-tf[words]'"):
        words.english_frequencies()


def test_neighbours_are_those_of_a_full_search(monkeypatch):
    # The rows take more than one block.
    n = 600
    embeddings = np.random.default_rng(0).normal(size=(n, 3))
    monkeypatch.setattr(words, "RANK_BINS", ((1, 551), (551, n + 1)))
    found = words.rank_statistics(embeddings, np.arange(1, n + 1))
    others = ~np.eye(n, dtype=bool)
    distances = np.linalg.norm(embeddings[:, None] - embeddings, axis=-1)[others].reshape(n, n - 1)
    products = (embeddings @ embeddings.T)[others].reshape(n, n - 1)
    for one, rows in zip(found, (slice(550), slice(550, n)), strict=True):
        assert one.mean_l2_norm == pytest.approx(np.linalg.norm(embeddings[rows], axis=1).mean())
        for k in (3, 7):
            assert one.mean_knn_l2_distance[k] == pytest.approx(np.sort(distances[rows])[:, :k].mean())
            assert one.mean_knn_dot_product[k] == pytest.approx(-np.sort(-products[rows])[:, :k].mean())


def test_projection_is_onto_the_first_two_singular_directions():
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(50, 6)) * [9, 5, 1, 1, 1, 1] + [20, 0, 0, 0, 0, 0]
    points = words.svd_projection(embeddings)
    singular = np.linalg.svd(embeddings, compute_uv=False)
    assert np.linalg.norm(points, axis=0) == pytest.approx(singular[:2])
    assert points[:, 0] @ points[:, 1] == pytest.approx(0, abs=1e-6 * singular[0] ** 2)
    # The mean lies to the right, whatever sign the decomposition chose.
    assert (points.mean(axis=0) > 0).all()
