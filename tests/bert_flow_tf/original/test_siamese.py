"""The siamese model; tests/golden has TF1's training steps."""

import types

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.original.settings import LossSettings
from bert_flow_tf.original.siamese import SiameseBertFlow
from glow.config import GlowConfig
from glow.flow import Glow
from glow.optimizer import AdamWeightDecay


def test_the_classifier_begins_with_a_truncated_normal_of_002():
    model = SiameseBertFlow(types.SimpleNamespace(embedding_size=4096), None, num_labels=3)
    weights = model.output_weights.numpy()
    assert weights.shape == (3, 3 * 4096)
    # Cut at two deviations, which leaves .88 of the deviation.
    assert 0.0399 < np.abs(weights).max() <= 0.04
    assert weights.std() == pytest.approx(0.02 * 0.8796, rel=0.02)


@pytest.mark.parametrize("l2_penalty", [-1.0, 0.1])
def test_where_no_label_counts_a_penalty_alone_is_learned_from(l2_penalty):
    flow = Glow(GlowConfig(n_levels=1, depth=1, coupling_width=2), 4, seed=0)
    encoder = types.SimpleNamespace(embedding_size=4, pooled_variables=())
    model = SiameseBertFlow(
        encoder, flow, losses=LossSettings(num_examples=0, l2_penalty=l2_penalty)
    )
    model.compile(AdamWeightDecay(0.1))
    before = flow.forward(tf.ones([1, 4]))
    model.train_step(({"embedding": tf.ones([1, 2, 4])}, tf.ones([1])))
    assert np.array_equal(flow.forward(tf.ones([1, 4])), before) == (l2_penalty <= 0)
