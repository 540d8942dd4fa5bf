"""What a flow changes: measures of the same embeddings before and after it, and whether there was a cone."""

import dataclasses

import numpy as np
import pytest

from bert_flow_tf.evaluation.change import change_by
from bert_flow_tf.evaluation.isotropy import gaussian_bits_per_dim, isotropy
from glow.config import GlowConfig
from glow.flow import Glow


def test_the_measures_are_of_the_embeddings_and_of_their_latents():
    embeddings = (np.random.default_rng(0).normal(size=(40, 6)) * [1, 2, 3, 4, 5, 6] + 3).astype("float32")
    flow = Glow(GlowConfig(n_levels=1, depth=1), 6, seed=1)
    flow.initialize_from_data(embeddings)
    change = change_by(flow, embeddings)
    assert change.before == isotropy(embeddings)
    assert change.after == isotropy(flow.forward(embeddings).numpy())
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
