"""The encoder layer's dropout and pooler."""

import copy

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder import bert
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.tokenizer import TOKEN_SPECS
from tests.refusals import user_error


@pytest.fixture(scope="module")
def small_inputs(small_source):
    return small_source.tokenizer()(tf.constant(["The cats sat.", "cat"]), 10)


def test_dropout_is_that_of_seed_and_number_alone(small_source, small_inputs):
    encoder = SentenceEncoder(small_source, "avg", trainable=True)

    def embeddings(numbers, rows=(0, 1), seed=5):
        inputs = {name: tf.gather(value, rows) for name, value in small_inputs.items()}
        numbered = inputs | {"occurrence": tf.constant(numbers, tf.int64)}
        return encoder(numbered, training=True, dropout_seed=seed).numpy()

    first = embeddings([0, 1])
    np.testing.assert_array_equal(embeddings([0, 1]), first)
    np.testing.assert_allclose(embeddings([1, 0], rows=(1, 0)), first[::-1], atol=2e-6)
    assert np.abs(embeddings([2, 3]) - first).max() > 1e-2
    # Outside of training numbers change nothing; in training their lack makes dropout random.
    numbered = small_inputs | {"occurrence": tf.constant([0, 1], tf.int64)}
    np.testing.assert_array_equal(encoder(numbered), encoder(small_inputs))
    random, other = (encoder(small_inputs, training=True) for _ in range(2))
    assert np.abs(random - other).max() > 1e-2
    # A frozen encoder drops out as well.
    frozen = SentenceEncoder(small_source, "avg", trainable=False)
    np.testing.assert_allclose(frozen(numbered, training=True, dropout_seed=5), first, atol=5e-6)
    assert np.abs(embeddings([0, 1], seed=6) - first).max() > 1e-2


def test_a_copy_computes_with_its_own_variables(small_source, small_inputs):
    encoder = SentenceEncoder(small_source, "avg", trainable=True)
    copied = copy.deepcopy(encoder)
    bias = copied.variables_by_name["bert/encoder/layer_0/output/LayerNorm/beta"]
    bias.assign(bias + 1.0)
    found = copied.traced_embed(small_inputs)
    np.testing.assert_allclose(found, copied(small_inputs), rtol=0, atol=1e-5)
    assert np.abs(found - encoder(small_inputs)).max() > 0.5


@pytest.mark.parametrize("dtype", ["int64", "bool", "float32"])
def test_a_mask_may_have_any_type(small_source, small_inputs, dtype):
    encoder = SentenceEncoder(small_source, "avg", trainable=True)
    given = small_inputs | {"input_mask": tf.cast(small_inputs["input_mask"], dtype)}
    np.testing.assert_array_equal(encoder(given), encoder(small_inputs))


def test_a_model_without_a_pooler_has_no_pooled_output(tiny_source):
    encoder = SentenceEncoder(tiny_source, "avg", trainable=True)
    kernel = encoder.variables_by_name["bert/pooler/dense/kernel"]
    kernel.assign(tf.zeros_like(kernel))
    with user_error("pooling: found 'cls'", "paper-cls"):
        encoder.with_pooling("cls")


def test_a_rows_norm_does_not_depend_on_its_place():
    rng = np.random.default_rng(0)
    x, gamma, beta = (rng.normal(size=shape).astype(np.float32) for shape in ((40, 8), 8, 8))
    normed = bert._frozen_layer_norm(x, gamma, beta)
    for start in range(37):
        found = bert._frozen_layer_norm(x[start : start + 3], gamma, beta)
        np.testing.assert_array_equal(found, normed[start : start + 3])


def test_a_frozen_bert_has_no_batch_norm(encoder):
    # TensorFlow's batch norm keeps its number of channels between the calls of all threads.
    inputs = dict.fromkeys(TOKEN_SPECS, tf.ones([1, 3], tf.int32))
    graph = tf.function(encoder.embed).get_concrete_function(inputs).graph
    assert "BatchNorm" not in " ".join(one.type for one in graph.get_operations())
