"""The threshold of random pairs, against all cosines and on unseen rows."""

import numpy as np
import pytest

from bert_flow_tf.vectors import thresholds
from bert_flow_tf.vectors.thresholds import sampled, threshold
from tests.refusals import user_error


def drawn(n, seed=0):
    """Rows in a cone, so that cosines are far from 0."""
    return np.random.default_rng(seed).normal(size=(n, 20)).astype(np.float32) + 0.5


def exceeding(u, cosine):
    """The share of pairs of different rows above a cosine."""
    unit = u / np.linalg.norm(u, axis=1, keepdims=True)
    return (unit @ unit.T)[np.triu_indices(len(u), 1)].__gt__(cosine).mean()


def test_the_share_above_it_is_the_wanted_one_here_and_on_other_rows():
    for share in (1e-3, 1e-2, 0.4):
        found = threshold(drawn(800), share)
        assert abs(exceeding(drawn(800), found.cosine) / share - 1) < 0.01
        assert found.low <= found.cosine <= found.high and found.sentences == 800
        assert exceeding(drawn(2000, 1), found.cosine) == pytest.approx(share, rel=0.25)
    # The intervals of other rows hold the threshold of many rows in about 95 % of the cases.
    wanted = threshold(drawn(4000, 100), 1e-2).cosine
    found = [threshold(drawn(300, seed), 1e-2) for seed in range(40)]
    assert 34 <= sum(one.low <= wanted <= one.high for one in found) < 40
    assert threshold(drawn(5000)).sentences == 4000


def test_of_many_rows_the_same_are_drawn_before_and_after_encoding(monkeypatch):
    monkeypatch.setattr(thresholds, "_MOST_ROWS", 200)
    u = drawn(300)
    drawn_rows = [int(text) for text in sampled([str(i) for i in range(300)])]
    assert len(set(drawn_rows)) == 200
    assert threshold(u[drawn_rows], 1e-2) == threshold(u, 1e-2)


def test_too_few_rows_zeros_and_no_share_are_named():
    with user_error("false_matches: found 100 different sentences for 0.001, expected 142 or more"):
        threshold(drawn(100))
    with user_error("threshold: 200 of the 200 sentences have embeddings that are zero"):
        threshold(np.zeros((200, 3)))
    for share in (0, 1, -0.5):
        with user_error(f"false_matches: found {share}"):
            threshold(drawn(100), share)
