"""Calibrations compute what their sources say."""

import numpy as np
import pytest

from bert_flow_tf.calibration.methods import find_method
from bert_flow_tf.calibration.settings import FitSettings
from glow.constant_channels import negligible_channels
from tests.refusals import user_error

NAMES = ("sn", "natsv-3", "sn+natsv-3", "whitening", "whitening-4", "soft-whitening-0.1")


def embeddings(n=200, width=12, seed=0, dtype=np.float32):
    """Correlated channels with a mean far from zero."""
    rng = np.random.default_rng(seed)
    mixing = rng.normal(size=(width, width)) * rng.uniform(0.1, 2, size=width)
    return (rng.normal(size=(n, width)) @ mixing + 3 * rng.normal(size=width)).astype(dtype)


def with_constant_channels(rounding):
    """Add constant channels 2, 5 and 9 up to rounding."""
    X = embeddings()
    noise = np.random.default_rng(1).uniform(-1, 1, size=(len(X), 3))
    for i, (channel, value) in enumerate({2: 0.0, 5: 0.7, 9: -40.0}.items()):
        X[:, channel] = value + rounding * noise[:, i] * max(abs(value) * 2e-7, 1e-8)
    return X


def learned(method, x):
    """Return the mean and the matrix of a method."""
    first, *others = find_method(method).transformers
    first.fit(x)
    matrix = first.matrix_
    for one in others:
        one.fit((x - first.mean_) @ matrix)
        np.testing.assert_array_equal(one.mean_, 0)
        matrix = matrix @ one.matrix_
    return first.mean_, matrix


def calibrated(method, x):
    mean, matrix = learned(method, x)
    return (np.asarray(x, np.float64) - mean) @ matrix


def test_sn_and_whitening_leave_standard_moments():
    X = embeddings(dtype=np.float64)
    z = calibrated("sn", X)
    np.testing.assert_allclose(
        [z.mean(axis=0), z.std(axis=0)], [np.zeros(12), np.ones(12)], rtol=0, atol=1e-12
    )
    z = calibrated("whitening", X)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(np.cov(z.T), np.eye(12), rtol=0, atol=1e-8)
    np.testing.assert_allclose(calibrated("whitening-4", X), z[:, :4], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["soft-whitening-0.1", "whitening"])
def test_fewer_directions_are_the_leading_columns(name):
    X = embeddings()
    mean, matrix = learned(name, X)
    cut = learned(f"{name}-5", X)
    np.testing.assert_array_equal(cut[0], mean)
    np.testing.assert_array_equal(cut[1], matrix[:, :5])
    with pytest.raises(ValueError, match=f"found {name}-13, expected at most the 12 channels"):
        learned(f"{name}-13", X)


def test_natsv_removes_the_first_singular_vectors():
    X = embeddings(dtype=np.float64)
    for name, values in (("natsv-3", X), ("sn+natsv-3", (X - X.mean(axis=0)) / X.std(axis=0))):
        top = np.linalg.svd(values, full_matrices=False)[2][:3]
        np.testing.assert_allclose(
            calibrated(name, X), values @ (np.eye(12) - top.T @ top), rtol=0, atol=1e-9
        )
    with pytest.raises(ValueError, match="12 directions"):
        learned("natsv-12", X)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rounding", [0.0, 1.0])
def test_constant_channels_are_neither_blown_up_nor_nan(name, rounding):
    X = with_constant_channels(rounding)
    # Many rows, because float32 rounds their sums.
    assert np.flatnonzero(negligible_channels(np.tile(X, [1000, 1]))).tolist() == [2, 5, 9]
    mean, matrix = learned(name, X)
    z = (X - mean) @ matrix
    assert np.isfinite(z).all()
    # No value of 200 draws is more than 6 deviations off; `natsv` keeps the scale of the input.
    assert np.abs(z).max() < (2 * np.abs(X).max() if name.startswith("natsv") else 6)
    # An input within rounding of another one goes to the same place.
    moved = X.copy()
    moved[:, [2, 5, 9]] *= 1 + 1e-7
    np.testing.assert_allclose((moved - mean) @ matrix, z, rtol=0, atol=2e-5)
    if name == "whitening":
        np.testing.assert_array_equal(z[:, 9:], 0)
        np.testing.assert_allclose(z[:, :9].std(axis=0), 1, rtol=5e-3)


def test_soft_whitening_adds_a_share_of_the_mean_eigenvalue_and_needs_few_rows():
    X = embeddings(dtype=np.float64)
    values = np.linalg.eigvalsh(np.cov(X.T))[::-1]
    expected = np.diag(values / (values + 0.5 * values.mean()))
    np.testing.assert_allclose(np.cov(calibrated("soft-whitening-0.5", X).T), expected, atol=1e-9)
    # With fewer rows than channels, no direction is lost.
    few = learned("soft-whitening-0.1", X[:6])[1]
    assert np.linalg.matrix_rank(few) == 12
    with pytest.raises(ValueError, match="found 6 different sentences for whitening"):
        learned("whitening", X[:6])


def test_unknown_names_are_named():
    for name in (
        "flows",
        "natsv-0",
        "natsv-",
        "whitening-x",
        "soft-whitening",
        "sn-2",
        "",
        "natsv",
    ):
        with user_error(repr(name)):
            FitSettings(method=name)
