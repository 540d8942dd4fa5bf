"""An export's inputs, seen by an encoder that returns their shapes."""

import types

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.serving.served_model import ServedBertFlow


@pytest.fixture(scope="module")
def served(tiny_source):
    """A `ServedBertFlow` of 8 word pieces, with unknown numbers of types.

    The encoder's embedding of a row is the shape [n, t] of its batch.
    """

    def embed(tokens):
        shape = tf.shape(tokens["input_word_ids"])
        return tf.broadcast_to(tf.cast(shape, tf.float32), [shape[0], 2])

    unknown = {"variables_by_name": {}, "max_seq_length": None, "num_types": None}
    encoder = types.SimpleNamespace(embedding_size=2, embed=embed, **unknown)
    tokenizer = Tokenizer.from_source(tiny_source)
    model = types.SimpleNamespace(source=tiny_source, tokenizer=tokenizer, flow=None, encoder=encoder)
    described = types.SimpleNamespace(normalized=False, low_dim=-1, max_seq_length=8, dtype="float32")
    return ServedBertFlow(model, described)


def test_sentences_are_padded_to_the_longest_of_their_batch(served):
    for words, length in (([1], 3), ([3, 1, 0], 5), ([0], 2), ([2, 50], 8)):
        sentences = tf.constant([" ".join(["w1"] * n) for n in words])
        for signature in (served.embed_sentences, served.pool_sentences):
            np.testing.assert_array_equal(signature(sentences)["embedding"], [[len(words), length]] * len(words))
    # Both sides of a pair share a batch: of [2, 4] and [2, 4]; each alone would be [1, 3] and [1, 4], of cosine 0.997.
    cosine = served.similarity(tf.constant(["w1"]), tf.constant(["w1 w2"]))["cosine"]
    np.testing.assert_allclose(cosine, [1.0], rtol=0, atol=1e-6)


def test_type_ids_have_no_limit_that_the_encoder_does_not_tell(served):
    ids, mask = tf.constant([[2, 5, 3]]), tf.ones([1, 3], tf.int32)
    assert served.embed_tokens(ids, mask, tf.constant([[0, 7, 0]]))["embedding"].shape == (1, 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"input_type_ids: found.*-1"):
        served.embed_tokens(ids, mask, tf.constant([[0, -1, 0]]))
