"""Ranks come from frequencies, and Table 1's means from the words of each range and their nearest neighbours."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation import word_frequency


def test_ranks_are_of_whole_words_by_frequency():
    vocabulary = ["[PAD]", "dog", "##s", "the", "12", ".", "zyx", "[unused1]", "Cat"]
    frequencies = {"the": 0.05, "dog": 1e-4, "cat": 2e-4, "s": 0.1, "12": 0.1, ".": 0.2, "zyx": 0}
    assert word_frequency.frequency_ranks(vocabulary, frequencies).tolist() == [0, 3, 0, 1, 0, 0, 0, 0, 2]


def test_words_of_equal_frequency_rank_in_the_vocabularys_order():
    frequencies = {"a": 0.1, "b": 0.1, "c": 0.2}
    assert word_frequency.frequency_ranks(["b", "a", "c"], frequencies).tolist() == [2, 3, 1]


def test_vocabulary_without_a_known_word_is_refused():
    with pytest.raises(UserError, match="none of its 2 pieces is a word with a known frequency"):
        word_frequency.frequency_ranks(["[PAD]", "w1"], {"the": 0.05})


def test_english_frequencies_put_the_commonest_words_first():
    frequencies = word_frequency.english_frequencies()
    assert frequencies["the"] > frequencies["because"] > frequencies["photosynthesis"] > 0


def test_missing_package_is_named_with_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "wordfreq", None)
    with pytest.raises(UserError, match=r"pip install bert-flow-tf\[words\]"):
        word_frequency.english_frequencies()


def test_means_of_a_worked_example():
    # on a line at 1, 2, 4 and 8; the last has no rank but is a neighbour all the same
    embeddings = np.array([[1.0, 0], [2, 0], [4, 0], [8, 0]])
    first, second, empty = word_frequency.rank_statistics(
        embeddings, [1, 3, 2, 0], bins=((1, 3), (3, 5), (5, 9)), neighbors=(1, 2)
    )
    assert (first.words, second.words, empty.words) == (2, 1, 0)
    assert first.mean_l2_norm == 2.5
    # of 1: distances 1, 3, products 8, 4; of 4: distances 2, 3, products 32, 8
    assert first.mean_knn_l2_distance == {1: 1.5, 2: 2.25}
    assert first.mean_knn_dot_product == {1: 20, 2: 13}
    assert second.mean_knn_l2_distance == {1: 1, 2: 1.5}
    assert empty.mean_l2_norm is None
    assert empty.mean_knn_l2_distance == {1: None, 2: None}


@settings(derandomize=True, max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(9, 40))
def test_neighbours_are_those_of_a_full_search(seed, n):
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(n, 3))
    (found,) = word_frequency.rank_statistics(embeddings, np.arange(1, n + 1), bins=((1, n + 1),), neighbors=(3, 7))
    others = ~np.eye(n, dtype=bool)
    distances = np.linalg.norm(embeddings[:, None] - embeddings, axis=-1)[others].reshape(n, n - 1)
    products = (embeddings @ embeddings.T)[others].reshape(n, n - 1)
    for k in (3, 7):
        assert found.mean_knn_l2_distance[k] == pytest.approx(np.sort(distances)[:, :k].mean())
        assert found.mean_knn_dot_product[k] == pytest.approx(-np.sort(-products)[:, :k].mean())


def test_blocks_of_rows_make_no_difference(monkeypatch):
    embeddings = np.random.default_rng(0).normal(size=(20, 4))
    whole = word_frequency.rank_statistics(embeddings, np.arange(20), bins=((1, 20),))
    monkeypatch.setattr(word_frequency, "_ROWS_PER_BLOCK", 3)
    (blocks,) = word_frequency.rank_statistics(embeddings, np.arange(20), bins=((1, 20),))
    assert blocks.mean_knn_l2_distance == pytest.approx(whole[0].mean_knn_l2_distance)
    assert blocks.mean_knn_dot_product == pytest.approx(whole[0].mean_knn_dot_product)


def test_words_with_the_same_embedding_are_at_distance_zero():
    embeddings = np.full((9, 5), 0.1, np.float32)
    (found,) = word_frequency.rank_statistics(embeddings, np.arange(9), bins=((1, 9),))
    assert found.mean_knn_l2_distance[7] == pytest.approx(0, abs=1e-3)


def test_what_does_not_fit_is_refused():
    embeddings = np.ones((8, 2))
    with pytest.raises(UserError, match="3 ranks for 8 word embeddings"):
        word_frequency.rank_statistics(embeddings, [1, 2, 3])
    with pytest.raises(UserError, match="7 word embeddings, expected more than the 7 neighbours"):
        word_frequency.rank_statistics(embeddings[:7], np.arange(7))
    embeddings[4, 1] = np.nan
    with pytest.raises(UserError, match="word embedding 4 of 8 is not finite"):
        word_frequency.rank_statistics(embeddings, np.arange(8))


def test_projection_is_onto_the_first_two_singular_directions():
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(50, 6)) * [9, 5, 1, 1, 1, 1] + [20, 0, 0, 0, 0, 0]
    points = word_frequency.svd_projection(embeddings)
    singular = np.linalg.svd(embeddings, compute_uv=False)
    assert np.linalg.norm(points, axis=0) == pytest.approx(singular[:2])
    assert points[:, 0] @ points[:, 1] == pytest.approx(0, abs=1e-6 * singular[0] ** 2)
    # the mean lies to the right, whatever sign the decomposition chose
    assert (points.mean(axis=0) > 0).all()
