"""Measures of isotropy: known values of simple shapes, and what must leave them alone."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation import isotropy
from glow.config import GlowConfig
from glow.flow import Glow

seeds = st.integers(0, 2**32 - 1)


def sample(seed, n=30, channels=5):
    """Embeddings with a mean and unequal variances."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, channels)) * rng.uniform(0.1, 3, channels) + rng.normal(size=channels)


# the two directions of each axis
CROSS = np.concatenate([np.eye(4), -np.eye(4)])


def test_a_perfectly_isotropic_shape():
    found = isotropy.measure_isotropy(CROSS)
    # of the 7 others of each, one is opposite and the rest at right angles
    assert found.mean_cosine == pytest.approx(-1 / 7)
    assert found.mean_share == pytest.approx(0)
    assert found.top_share == pytest.approx(1 / 4)
    assert found.centred_top_share == pytest.approx(1 / 4)
    assert found.participation_ratio == pytest.approx(4)
    assert found.effective_rank == pytest.approx(4)
    assert found.partition_ratio == pytest.approx(1)
    assert found.spectrum == pytest.approx([0.5] * 4)
    assert found.constant_channels == 0


def test_a_narrow_cone():
    # a mean of length 3 and unit steps across it
    found = isotropy.measure_isotropy(np.pad(CROSS, ((0, 0), (1, 0)), constant_values=3.0))
    assert found.mean_share == pytest.approx(0.9)
    assert found.top_share == pytest.approx(0.9)
    assert found.centred_top_share == pytest.approx(1 / 4)
    assert found.participation_ratio == pytest.approx(4)
    # scaled by 1 / sqrt(10), Z along the mean and against it are 8 exp(+-0.9486833)
    assert found.partition_ratio == pytest.approx(np.exp(-2 * 0.9486833), rel=1e-6)
    assert found.constant_channels == 1


@settings(derandomize=True, max_examples=25, deadline=None)
@given(seeds, st.sampled_from([(30, 5), (4, 9)]))
def test_spectra_and_partition_function_are_those_of_the_whole_decomposition(seed, shape):
    x = sample(seed, *shape)
    found = isotropy.measure_isotropy(x)
    _, singular, directions = np.linalg.svd(x / np.sqrt(np.mean(np.sum(x**2, axis=1))), full_matrices=False)
    assert np.array(found.spectrum) / np.linalg.norm(found.spectrum) == pytest.approx(singular / np.sqrt(len(x)))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[~np.eye(len(x), dtype=bool)]
    assert found.mean_cosine == pytest.approx(np.mean(cosines), abs=1e-12)
    z = [np.exp(x @ c / np.sqrt(np.mean(np.sum(x**2, axis=1)))).sum() for c in [*directions, *-directions]]
    assert found.partition_ratio == pytest.approx(min(z) / max(z))
    covariance = np.cov(x.T, bias=True)
    assert np.sum(np.square(found.centred_spectrum)) == pytest.approx(np.trace(covariance))
    assert found.participation_ratio == pytest.approx(np.trace(covariance) ** 2 / np.sum(covariance**2))


def test_constant_channels_are_counted_and_change_no_other_measure_of_variance():
    x = sample(0, n=50).astype(np.float32)
    rounding = np.random.default_rng(1).normal(size=50) * 1e-8
    padded = np.column_stack([x, np.zeros(50), np.full(50, 0.7) + rounding]).astype(np.float32)
    found, expected = isotropy.measure_isotropy(padded), isotropy.measure_isotropy(x)
    assert found.constant_channels == 2
    assert found.participation_ratio == pytest.approx(expected.participation_ratio, rel=1e-6)
    assert found.effective_rank == pytest.approx(expected.effective_rank, rel=1e-5)
    log_density = stats.norm.logpdf(x, x.mean(axis=0), x.std(axis=0))
    assert isotropy.gaussian_bits_per_dim(padded) == pytest.approx(-np.mean(log_density) / np.log(2))
    assert all(np.all(np.isfinite(value)) for value in vars(found).values())


@pytest.mark.parametrize(
    ("embeddings", "words"),
    [
        (np.ones((1, 3)), r"shape \(1, 3\), expected \[n, D\] with n of 2 or more"),
        (np.ones(3), r"shape \(3,\)"),
        ([[1.0, 0], [0, 0]], "embedding 2 of 2 is zero or not finite"),
        ([[1.0, np.nan], [1, 0]], "embedding 1 of 2 is zero or not finite"),
        ([[1.0, 2], [1, 2], [1, 2]], "all 3 embeddings are the same"),
    ],
)
@pytest.mark.parametrize("measure", [isotropy.measure_isotropy, isotropy.gaussian_bits_per_dim])
def test_embeddings_without_an_answer_are_refused(measure, embeddings, words):
    with pytest.raises(UserError, match=words):
        measure(embeddings)


def test_the_measures_are_of_the_embeddings_and_of_their_latents():
    embeddings = (np.random.default_rng(0).normal(size=(40, 6)) * [1, 2, 3, 4, 5, 6] + 3).astype("float32")
    flow = Glow(GlowConfig(n_levels=1, depth=1), 6, seed=1)
    flow.initialize_from_data(embeddings)
    change = isotropy.change_by(flow, embeddings)
    assert change.before == isotropy.measure_isotropy(embeddings)
    assert change.after == isotropy.measure_isotropy(flow.forward(embeddings).numpy())
    assert change.gaussian_bits_per_dim == isotropy.gaussian_bits_per_dim(embeddings)
    # After the initialisation by these data the flow is such a Gaussian, but for the coupling, which does nothing yet.
    assert change.flow_bits_per_dim == pytest.approx(change.gaussian_bits_per_dim, abs=0.05)
    assert change.is_worth_it


@pytest.mark.parametrize(("mean_cosine", "is_worth_it"), [(0.19, False), (0.2, True)])
def test_without_a_cone_it_is_not_worth_it(mean_cosine, is_worth_it):
    embeddings = np.random.default_rng(0).normal(size=(10, 4)).astype("float32")
    change = isotropy.change_by(Glow(GlowConfig(n_levels=1, depth=1), 4, seed=1), embeddings)
    before = dataclasses.replace(change.before, mean_cosine=mean_cosine)
    assert dataclasses.replace(change, before=before).is_worth_it == is_worth_it
