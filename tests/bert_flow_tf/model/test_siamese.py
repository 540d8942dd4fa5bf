"""What the model computes of embeddings (tests/golden has whole training steps of TF1)."""

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.errors import UserError
from bert_flow_tf.model.siamese import SiameseBertFlow, cosine_similarity, reduce_dimension


def test_low_dim_averages_neighbouring_channels():
    u = tf.constant([[1.0, 3.0, 5.0, 7.0]])
    np.testing.assert_array_equal(reduce_dimension(u, 2), [[2.0, 6.0]])
    np.testing.assert_array_equal(reduce_dimension(u, -1), u)


def test_low_dim_must_divide_the_embedding():
    with pytest.raises(UserError, match=r"^low_dim: found 5, expected a divisor of the embedding size 32"):
        SiameseBertFlow(None, None, embedding_size=32, low_dim=5)


def test_cosine_of_each_pair():
    a, b = tf.constant([[1.0, 0.0], [1.0, 1.0]]), tf.constant([[2.0, 0.0], [-3.0, -3.0]])
    np.testing.assert_allclose(cosine_similarity(a, b), [1.0, -1.0], rtol=1e-6)
