"""The method that chooses, on spaces of known directions."""

import numpy as np
import pytest

from bert_flow_tf.calibration.affine import WhiteningAboutOrigin
from bert_flow_tf.calibration.auto import Auto, softness_of
from bert_flow_tf.vectors.similarities import mean_cosine, normalized


def space(directions, rows=1000, width=384, cosine=0.5, seed=0):
    """Return rows that vary in so many directions, with a mean cosine."""
    rng = np.random.default_rng(seed)
    scale = np.where(np.arange(width) < directions, 1.0, 1e-3)
    rotation = np.linalg.qr(rng.normal(size=(width, width)))[0]
    away = rng.normal(size=width)
    distance = np.sqrt(directions * cosine / (1 - cosine)) / np.linalg.norm(away)
    return (rng.normal(size=(rows, width)) * scale) @ rotation + distance * away


@pytest.mark.parametrize(
    ("directions", "cosine", "words"),
    [(12, 0.5, "whitened softly"), (45, 0.4, "whitened gently"), (60, 0.7, "whitened gently")],
)
def test_a_cone_is_whitened_with_a_softness_of_its_shape(directions, cosine, words):
    x = space(directions, cosine=cosine)
    auto = Auto().fit(x)
    assert auto.choice_.startswith(words)
    about = f"cosine of {mean_cosine(normalized(x)):.2f} on average, and 1,000 use {directions} of"
    assert about in auto.choice_
    softness = auto.decision_.softness
    assert softness == pytest.approx(softness_of(directions, cosine), rel=0.2)
    named = WhiteningAboutOrigin(softness).fit(x)
    np.testing.assert_allclose(auto.matrix_, named.matrix_)
    assert not auto.mean_.any()


def test_the_softness_rises_with_directions_and_falls_with_the_cosine():
    assert softness_of(20, 0.5) < softness_of(40, 0.5) < softness_of(40, 0.3)
    assert softness_of(2, 0.9) == 0.1
    assert softness_of(40, 0.0) == softness_of(40, -0.1) == np.inf


def test_a_greater_softness_changes_cosines_less():
    x = space(20)
    changes = [
        np.abs(cosines(WhiteningAboutOrigin(softness).fit(x).transform(x)) - cosines(x)).max()
        for softness in (1.0, 100.0, 1e6)
    ]
    assert changes[0] > 2 * changes[1]
    assert changes[2] < 1e-3


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (space(60, cosine=0.05), "use 60 of 384 directions: no narrow cone"),
        (space(12, width=32), "use 12 of 32 directions: no narrow cone"),
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
    assert auto.choice_.startswith("whitened softly to 8 channels (softness ")
    named = WhiteningAboutOrigin(auto.decision_.softness, 8).fit(x)
    np.testing.assert_allclose(auto.matrix_, named.matrix_)


def test_a_projection_keeps_cosines_better_than_one_of_centred_rows():
    x = space(120, cosine=0.95)
    auto = Auto(30).fit(x)
    assert auto.choice_.startswith("projected to the 30 directions that keep cosines best: ")
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
