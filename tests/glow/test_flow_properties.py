"""Every configuration is a bijection with the density of its Jacobian."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from glow.config import GlowConfig
from glow.flow import Glow
from tests.glow.bijector_checks import check_density, perturb

CONFIGS = st.builds(
    GlowConfig,
    coupling=st.sampled_from(["additive", "affine"]),
    activation=st.sampled_from(["relu", "gatu"]),
    permutation=st.booleans(),
    depth=st.integers(1, 2),
    n_levels=st.integers(1, 3),
    coupling_width=st.integers(1, 5),
)

# A flow takes a second to build and check, too long for hypothesis to look for the smallest
# failure.
FEW = settings(
    max_examples=6, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate]
)


@FEW
# Halves are unequal: 7 = 3 + 4, 3 = 1 + 2.
@example(config=GlowConfig(coupling="affine", n_levels=2, depth=1), more=3, seed=0)
@given(config=CONFIGS, more=st.integers(0, 8), seed=st.integers(0, 2**31))
def test_any_flow_is_a_bijector(config, more, seed):
    event_size = 2**config.n_levels + more
    flow = Glow(config, event_size, seed=seed, dtype=tf.float64)
    perturb(flow.trainable_variables, seed)
    check_density(flow.bijector, event_size, seed)


@pytest.mark.differs("`--flow_ddi`")
@FEW
@given(config=CONFIGS, seed=st.integers(0, 2**31))
def test_any_flow_initialised_from_data_is_normalised(config, seed):
    flow = Glow(dataclasses.replace(config, coupling="additive"), 8, seed=seed)
    u = np.random.default_rng(seed).normal(size=(40, 8)).astype(np.float32)
    u[:, 3] = 0.7
    flow.initialize_from_data(u)
    z, bits_per_dim = flow.forward_and_bits_per_dim(u)
    assert np.isfinite(z).all()
    assert np.isfinite(bits_per_dim).all()
    np.testing.assert_allclose(flow.inverse(z), u, atol=1e-4)
    if config.permutation:
        # Additive networks start at zero, so a channel's last actnorm decides: deviation 1, or 0 if
        # constant.
        deviation = np.sort(z.numpy().std(axis=0))
        np.testing.assert_allclose(deviation, [0.0] + [1.0] * 7, atol=1e-3)
