"""The method that chooses, on spaces of known directions."""

import numpy as np
import pytest

from bert_flow_tf.calibration.affine import SoftWhitening
from bert_flow_tf.calibration.auto import Auto


def space(directions, rows=1000, width=384, seed=0):
    """Return rows that vary in so many directions, far from the origin."""
    rng = np.random.default_rng(seed)
    scale = np.where(np.arange(width) < directions, 1.0, 1e-3)
    rotation = np.linalg.qr(rng.normal(size=(width, width)))[0]
    return (rng.normal(size=(rows, width)) * scale) @ rotation + 3 * rng.normal(size=width)


def test_few_directions_are_whitened_softly():
    x = space(12)
    auto = Auto().fit(x)
    assert auto.choice_ == "soft-whitening-0.3: 1,000 different sentences use 12 of 384 directions"
    named = SoftWhitening(0.3).fit(x)
    np.testing.assert_allclose(auto.matrix_, named.matrix_)
    np.testing.assert_allclose(auto.mean_, named.mean_)


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (space(60), "use 60 of 384 directions; from 30 on"),
        (space(12, width=32), "use 12 of 32 directions; from 8 on"),
        (space(12, rows=99), "99 different sentences, fewer than 100"),
        (np.tile(space(12, rows=50), (10, 1)), "50 different sentences, fewer than 100"),
        (np.ones((200, 64)) + 1e-7 * space(12, rows=200, width=64), "by rounding alone"),
    ],
)
def test_where_it_cannot_tell_it_leaves_the_embeddings_as_they_are(x, reason):
    auto = Auto().fit(x)
    assert auto.choice_.startswith("left as they are: ")
    assert reason in auto.choice_
    np.testing.assert_array_equal(auto.transform(x), x)


def test_fewer_channels_are_the_leading_directions():
    x = space(12)
    auto = Auto(8).fit(x)
    assert auto.choice_.startswith("soft-whitening-0.3-8: 1,000 different sentences use 12 of 384")
    named = SoftWhitening(0.3, 8).fit(x)
    np.testing.assert_allclose(auto.matrix_, named.matrix_)


def test_a_projection_keeps_cosines_better_than_one_of_centred_rows():
    x = space(60)
    auto = Auto(30).fit(x)
    reason = "1,000 different sentences use 60 of 384 directions; from 30 on, whitening can harm"
    assert auto.choice_ == f"projected to the 30 directions that keep cosines best: {reason}"
    np.testing.assert_allclose(auto.matrix_.T @ auto.matrix_, np.eye(30), atol=1e-9)
    rotation = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[2]

    def lost(z):
        return np.abs(cosines(z) - cosines(x)).mean()

    assert lost(auto.transform(x)) < 0.1 * lost((x - x.mean(axis=0)) @ rotation[:30].T)
    with pytest.raises(ValueError, match="found auto-385, expected at most the 384 channels"):
        Auto(385).fit(x)


def cosines(x):
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    return u @ u.T


def test_order_scale_and_repetition_do_not_change_the_choice():
    x = space(20)
    expected = Auto().fit(x)
    order = np.random.default_rng(1).permutation(len(x))
    for other, scale in ((x[order], 1), (np.tile(x, (3, 1)), 1), (100 * x, 100)):
        found = Auto().fit(other)
        assert found.choice_ == expected.choice_
        np.testing.assert_allclose(
            np.abs(found.matrix_) * scale, np.abs(expected.matrix_), rtol=1e-5, atol=1e-7
        )
