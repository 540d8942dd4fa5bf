"""Measures before and after a flow; the check of its equations sees a wrong density, inverse and folded form."""

import dataclasses

import numpy as np
import pytest

from bert_flow_tf.evaluation.flow_checks import change_by, self_check
from bert_flow_tf.evaluation.isotropy import gaussian_bits_per_dim, measure_isotropy
from glow.config import GlowConfig
from glow.flow import Glow
from glow.folded import FoldedFlow


def test_the_measures_are_of_the_embeddings_and_of_their_latents():
    embeddings = (np.random.default_rng(0).normal(size=(40, 6)) * [1, 2, 3, 4, 5, 6] + 3).astype("float32")
    flow = Glow(GlowConfig(n_levels=1, depth=1), 6, seed=1)
    flow.initialize_from_data(embeddings)
    change = change_by(flow, embeddings)
    assert change.before == measure_isotropy(embeddings)
    assert change.after == measure_isotropy(flow.forward(embeddings).numpy())
    assert change.gaussian_bits_per_dim == gaussian_bits_per_dim(embeddings)
    # After the initialisation by these data the flow is such a Gaussian, but for the coupling, which does nothing yet.
    assert change.flow_bits_per_dim == pytest.approx(change.gaussian_bits_per_dim, abs=0.05)
    assert change.is_worth_it


@pytest.mark.parametrize(("mean_cosine", "is_worth_it"), [(0.19, False), (0.2, True)])
def test_without_a_cone_it_is_not_worth_it(mean_cosine, is_worth_it):
    embeddings = np.random.default_rng(0).normal(size=(10, 4)).astype("float32")
    change = change_by(Glow(GlowConfig(n_levels=1, depth=1), 4, seed=1), embeddings)
    before = dataclasses.replace(change.before, mean_cosine=mean_cosine)
    assert dataclasses.replace(change, before=before).is_worth_it == is_worth_it


def test_the_flow_does_what_its_equations_say():
    assert all(found <= limit for _, found, limit in self_check())


@pytest.mark.parametrize(
    ("place", "method", "what"),
    [(Glow, "inverse", "from x to z"), (Glow, "log_prob", "log-density"), (FoldedFlow, "__call__", "folded")],
)
def test_what_is_wrong_is_seen(place, method, what, monkeypatch):
    right = getattr(place, method)
    monkeypatch.setattr(place, method, lambda self, x: 1.001 * right(self, x))
    assert [what in name for name, found, limit in self_check() if found > limit] == [True]
