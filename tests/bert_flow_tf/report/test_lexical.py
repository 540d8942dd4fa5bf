"""Edit distances and measures of word embeddings by frequency."""

import numpy as np

from bert_flow_tf.report import lexical


def test_the_edit_distance_counts_words(require):
    require("rapidfuzz")
    found = lexical.edit_distances(["a b c", "", "ab cd"], ["a  x c d", "a", "cd ab"])
    np.testing.assert_array_equal(found, [2, 1, 2])


def test_words_of_other_case_share_a_rank(require):
    require("wordfreq")
    pieces = ["[PAD]", "The", "of", "THE", "##s", "the", "Of", "qqzzqq"]
    assert lexical.frequency_ranks(pieces).tolist() == [0, 1, 2, 1, 0, 1, 2, 0]


def test_table_1_has_the_nearest_other_words_of_each_range(monkeypatch):
    monkeypatch.setattr(lexical, "_ROWS", 7)
    rng = np.random.default_rng(0)
    # The last two words are equal, and still neighbours of each other.
    x = rng.normal(size=[300, 6])
    x[299] = x[298]
    ranks = np.arange(300)[::-1]
    found = lexical.frequency_table(x, ranks)
    rows = np.flatnonzero((ranks >= 1) & (ranks < 100))
    apart = np.linalg.norm(x[rows, None] - x, axis=2)
    apart[np.arange(len(rows)), rows] = np.inf
    products = x[rows] @ x.T
    products[np.arange(len(rows)), rows] = -np.inf
    near = np.sort(apart, axis=1)[:, :5].mean()
    large = -np.sort(-products, axis=1)[:, :5].mean()
    measures = found.measures
    np.testing.assert_allclose(measures["mean 5-NN ℓ2 distance"][0], near)
    np.testing.assert_allclose(measures["mean 5-NN dot product"][0], large)
    assert np.isnan(measures["mean ℓ2 norm"][2])
    assert not found.is_as_in_paper
