"""Norms and cosines are those of scipy and scikit-learn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import distance
from sklearn import preprocessing

from bert_flow_tf.vectors.similarities import (
    FUNCTIONS,
    cosines,
    cosines_of_pairs,
    mean_cosine,
    normalized,
    similarities,
)
from tests.refusals import user_error


def two_sides(seed, n=6, width=5):
    return np.random.default_rng(seed).normal(size=(2, n, width)).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normalized_rows_are_the_librarys(dtype):
    rows = two_sides(0)[0].astype(dtype) * np.geomspace(1e-3, 1e6, 6)[:, np.newaxis].astype(dtype)
    rows[3] = 0
    found = normalized(rows)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, preprocessing.normalize(rows), rtol=3e-7)
    np.testing.assert_array_equal(normalized(rows[np.newaxis])[0], found)
    np.testing.assert_array_equal(normalized(rows[1]), found[1])
    # The library leaves float32 rows of a norm below 1e-6 as they are.
    np.testing.assert_allclose(normalized(rows * dtype(1e-10)), found, atol=1e-6)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.integers(1, 10), st.integers(1, 8), st.floats(1e-3, 1e3), st.integers(0, 1000))
def test_cosine_is_within_one_and_ignores_lengths(n, width, scale, seed):
    a, b = two_sides(seed, n, width)
    found = cosines(a, b)
    assert found.dtype == np.float64
    assert np.abs(found).max() <= 1 + 1e-12
    np.testing.assert_allclose(cosines(a.astype(np.float64) * scale, b), found, rtol=0, atol=1e-12)
    # To the bit: pairs of like sentences are ties, whichever they are.
    np.testing.assert_array_equal(cosines(a, a), 1)


def test_a_row_of_zeros_has_cosine_0():
    a, b = two_sides(1)
    b[2] = 0
    assert cosines(a, b)[2] == 0 and np.isfinite(cosines(a, b)).all()


@pytest.mark.parametrize(
    ("name", "metric"),
    [("cosine", "cosine"), ("euclidean", "euclidean"), ("manhattan", "cityblock")],
)
def test_similarities_are_scipys_distances(name, metric):
    a, b = two_sides(2)
    apart = distance.cdist(a, b, metric)
    expected = 1 - apart if name == "cosine" else -apart
    np.testing.assert_allclose(similarities(name, a, b), expected, atol=1e-6)
    pairs = FUNCTIONS[name](a, b)
    assert pairs.dtype == np.float32
    np.testing.assert_allclose(pairs, np.diag(expected), atol=1e-6)


def test_the_mean_cosine_is_of_different_rows():
    units = normalized(two_sides(3)[0])
    assert mean_cosine(units) == pytest.approx((units @ units.T)[~np.eye(6, dtype=bool)].mean())


@pytest.mark.parametrize("value", [np.nan, 0.0])
def test_embedding_without_a_direction_is_named_by_its_pair(value):
    a, b = np.ones((2, 4, 3))
    b[2:, 1 if value else slice(None)] = value
    with user_error("sts12, MSRpar: 2 of the 4 second sentences", "pair 3"):
        cosines_of_pairs(a, b, "sts12, MSRpar")
