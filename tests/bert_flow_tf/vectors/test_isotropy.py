"""Measures of isotropy have the known values of simple shapes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bert_flow_tf.vectors import isotropy
from tests.refusals import user_error

seeds = st.integers(0, 2**32 - 1)


def sample(seed, n=30, channels=5):
    """Embeddings with a mean and unequal variances."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, channels)) * rng.uniform(0.1, 3, channels) + rng.normal(
        size=channels
    )


# It has both directions of each axis.
CROSS = np.concatenate([np.eye(4), -np.eye(4)])


def test_shapes_whose_measures_are_known():
    found = isotropy.measure_isotropy(CROSS)
    # Of the 7 others of each, one is opposite and the rest are at right angles.
    assert (found.mean_cosine, found.mean_share, found.top_share) == pytest.approx(
        (-1 / 7, 0, 1 / 4)
    )
    assert (found.effective_rank, found.partition_ratio, found.constant_channels) == pytest.approx(
        (4, 1, 0)
    )
    assert found.spectrum == pytest.approx([0.5] * 4)
    # The mean has length 3, with unit steps across it: a narrow cone.
    cone = isotropy.measure_isotropy(np.pad(CROSS, ((0, 0), (1, 0)), constant_values=3.0))
    assert (cone.mean_share, cone.top_share, cone.constant_channels) == pytest.approx((0.9, 0.9, 1))
    for shape in (found, cone):
        assert (shape.centred_top_share, shape.participation_ratio) == pytest.approx((1 / 4, 4))
    # Scaled by 1 / sqrt(10), Z along the mean and against it are 8 exp(+-0.9486833).
    assert cone.partition_ratio == pytest.approx(np.exp(-2 * 0.9486833), rel=1e-6)


@settings(derandomize=True, max_examples=25, deadline=None)
@given(seeds, st.sampled_from([(30, 5), (4, 9)]))
def test_measures_are_those_of_the_whole_decomposition(seed, shape):
    x = sample(seed, *shape)
    found = isotropy.measure_isotropy(x)
    _, singular, directions = np.linalg.svd(
        x / np.sqrt(np.mean(np.sum(x**2, axis=1))), full_matrices=False
    )
    assert np.array(found.spectrum) / np.linalg.norm(found.spectrum) == pytest.approx(
        singular / np.sqrt(len(x))
    )
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[~np.eye(len(x), dtype=bool)]
    assert found.mean_cosine == pytest.approx(np.mean(cosines), abs=1e-12)
    z = [
        np.exp(x @ c / np.sqrt(np.mean(np.sum(x**2, axis=1)))).sum()
        for c in [*directions, *-directions]
    ]
    assert found.partition_ratio == pytest.approx(min(z) / max(z))
    covariance = np.cov(x.T, bias=True)
    assert np.sum(np.square(found.centred_spectrum)) == pytest.approx(np.trace(covariance))
    assert found.participation_ratio == pytest.approx(
        np.trace(covariance) ** 2 / np.sum(covariance**2)
    )


def test_constant_channels_are_counted_and_change_nothing_else():
    x = sample(0, n=50).astype(np.float32)
    rounding = np.random.default_rng(1).normal(size=50) * 1e-8
    padded = np.column_stack([x, np.zeros(50), np.full(50, 0.7) + rounding]).astype(np.float32)
    found, expected = isotropy.measure_isotropy(padded), isotropy.measure_isotropy(x)
    assert found.constant_channels == 2
    assert found.participation_ratio == pytest.approx(expected.participation_ratio, rel=1e-6)
    assert found.effective_rank == pytest.approx(expected.effective_rank, rel=1e-5)
    log_density = stats.norm.logpdf(x, x.mean(axis=0), x.std(axis=0))
    assert isotropy.gaussian_bits_per_dim(padded) == pytest.approx(
        -np.mean(log_density) / np.log(2)
    )
    assert all(np.all(np.isfinite(value)) for value in vars(found).values())


# The authors' own programs computed the measures of these vectors; IsoScore's takes the root of
# the number of channels in float32.
STEPS = np.arange(120.0).reshape(20, 6) ** 1.5
SHAPE = np.sin(STEPS) * [1, 2, 3, 1, 0.5, 0.1] + 0.3


def test_isoscore_is_its_authors():
    for x, score in ((SHAPE, 0.2347161152866296), (SHAPE[:4], 0.1342594096432802)):
        assert isotropy.measure_isotropy(x).iso_score == pytest.approx(score, rel=1e-6)
    assert isotropy.measure_isotropy(CROSS).iso_score == pytest.approx(1)
    assert isotropy.measure_isotropy(SHAPE[:, :1]).iso_score is None


def test_uniformity_and_alignment_are_their_authors(monkeypatch):
    uniformity = pytest.approx(-1.9291983485850943, rel=1e-9)
    assert isotropy.measure_isotropy(SHAPE).uniformity == uniformity
    near = SHAPE + 0.3 * np.cos(STEPS)
    assert isotropy.alignment(SHAPE, near) == pytest.approx(0.02695760508642079, rel=1e-9)
    monkeypatch.setattr(isotropy, "_ROWS", 7)
    assert isotropy.measure_isotropy(SHAPE).uniformity == uniformity
    monkeypatch.setattr(isotropy, "_MOST_ROWS", 15)
    assert isotropy.measure_isotropy(SHAPE).uniformity == pytest.approx(-1.93, abs=0.2)


def test_positive_pairs_have_above_4_of_5_points_or_the_label_1():
    for scores, highest, rows in (
        # SimCSE's footnote 3 says: a score higher than 4.
        ([5, 3.9, 4, 4.2, 0], None, [0, 3]),
        ([0, 1, 1], None, [1, 2]),
        ([0.79, 0.8, 1.0], None, [2]),
        ([1, 0.5], 5.0, []),
    ):
        assert isotropy.positive_pairs(scores, highest).tolist() == rows
    with user_error("pairs: found a score of 80"):
        isotropy.positive_pairs([3, 80])


def test_embeddings_without_an_answer_are_named():
    for embeddings in (
        np.ones((1, 3)),
        [[1.0, 0], [0, 0]],
        [[1.0, np.nan], [1, 0]],
        [[1.0, 2], [1, 2]],
    ):
        for measure in (isotropy.measure_isotropy, isotropy.gaussian_bits_per_dim):
            with user_error(f"embeddings {list(np.shape(embeddings))}"):
                measure(embeddings)
