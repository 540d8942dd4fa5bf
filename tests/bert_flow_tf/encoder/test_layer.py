"""The encoder layer's variables and dropout, and encoders that are no BERT."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.tokenizer import TOKEN_SPECS, Tokenizer
from tests.refusals import user_error


@pytest.fixture(scope="module")
def inputs(golden_dir):
    golden = np.load(golden_dir / "pooling.npz")
    names = {"input_word_ids": "input_ids", "input_mask": "input_mask", "input_type_ids": "segment_ids"}
    return {name: tf.constant(golden[key]) for name, key in names.items()}


@pytest.fixture(scope="module")
def small_inputs(small_source):
    return Tokenizer.from_source(small_source)(tf.constant(["The cats sat.", "cat"]), 10)


@pytest.fixture(scope="module")
def trainable(tiny_source):
    return SentenceEncoder(tiny_source, "cls", trainable=True)


def test_gradients_reach_every_variable(trainable, inputs):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(trainable(inputs, training=True) ** 2)
    gradients = tape.gradient(loss, trainable.variables_by_name)
    assert len(trainable.trainable_variables) == len(gradients) == 55
    assert all(gradient is not None for gradient in gradients.values())
    words = gradients["word_embeddings/embeddings"]
    # One slice per token, as in TF1: clipping by the global norm depends on it.
    assert isinstance(words, tf.IndexedSlices)
    assert words.values.shape[0] == tf.reduce_sum(inputs["input_mask"])
    assert sum(isinstance(gradient, tf.IndexedSlices) for gradient in gradients.values()) == 1
    sizes = ("hidden_size", "num_layers", "max_seq_length", "num_types")
    assert [getattr(trainable, name) for name in sizes] == [32, 3, 24, 2]
    assert trainable.with_pooling("paper-concat-last-2").embedding_size == 64


@pytest.mark.parametrize(
    ("pooling", "unread"), [("cls", {}), ("avg", {"pooler": 2}), ("avg-last-last-2", {"pooler": 2, "layer_2": 16})]
)
def test_pooled_variables_are_those_of_the_embedding(trainable, inputs, pooling, unread):
    encoder = trainable.with_pooling(pooling)
    pooled = {id(variable) for variable in encoder.pooled_variables}
    left = [variable for variable in encoder.trainable_variables if id(variable) not in pooled]
    assert len(left) == sum(unread.values())
    assert all(any(part in variable.name for part in unread) for variable in left)
    before = encoder(inputs).numpy()
    for variable in left:
        variable.assign(variable + 1.0)
    np.testing.assert_array_equal(encoder(inputs), before)


def test_dropout_is_that_of_seed_and_number_alone(small_source, small_inputs):
    encoder = SentenceEncoder(small_source, "avg", trainable=True)
    encoder.dropout_seed = 5

    def embeddings(numbers, rows=(0, 1)):
        inputs = {name: tf.gather(value, rows) for name, value in small_inputs.items()}
        return encoder(inputs | {"occurrence": tf.constant(numbers, tf.int64)}, training=True).numpy()

    first = embeddings([0, 1])
    np.testing.assert_array_equal(embeddings([0, 1]), first)
    np.testing.assert_allclose(embeddings([1, 0], rows=(1, 0)), first[::-1], atol=2e-6)
    assert np.abs(embeddings([2, 3]) - first).max() > 1e-2
    # Outside of training numbers change nothing; in training their lack makes dropout random.
    numbered = small_inputs | {"occurrence": tf.constant([0, 1], tf.int64)}
    np.testing.assert_array_equal(encoder(numbered), encoder(small_inputs))
    random, other = (encoder(small_inputs, training=True) for _ in range(2))
    assert np.abs(random - other).max() > 1e-2
    encoder.dropout_seed = 6
    assert np.abs(embeddings([0, 1]) - first).max() > 1e-2
    frozen = SentenceEncoder(small_source, "avg", trainable=False)
    assert frozen.trainable_variables == []
    assert np.abs(frozen(small_inputs, training=True) - frozen(small_inputs)).max() > 0.01


def test_replicas_drop_the_same_of_a_sentence(small_source, small_inputs):
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        encoder = SentenceEncoder(small_source, "avg", trainable=True)
    encoder.dropout_seed = 5
    inputs = small_inputs | {"occurrence": tf.constant([3, 4], tf.int64)}
    expected = encoder(inputs, training=True)

    @tf.function
    def step():
        def one():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return encoder({name: value[replica : replica + 1] for name, value in inputs.items()}, training=True)

        return strategy.run(one)

    found = tf.concat(strategy.experimental_local_results(step()), axis=0)
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_an_encoder_that_is_no_bert_runs_as_its_saved_model(small_source, small_inputs, tmp_path):
    bert = tf.saved_model.load(str(small_source.encoder_dir))
    half = tf.train.Checkpoint(bert=bert, variables=bert.variables, trainable_variables=bert.trainable_variables)

    def call(inputs, training):
        return tf.nest.map_structure(lambda x: tf.cast(x, tf.bfloat16), bert(inputs, training=training))

    half.__call__ = tf.function(call, autograph=False)
    for training in (False, True):
        half.__call__.get_concrete_function(TOKEN_SPECS, training)
    tf.saved_model.save(half, str(tmp_path))
    expected = SentenceEncoder(small_source, "avg", trainable=False)(small_inputs)
    numbered = small_inputs | {"occurrence": tf.constant([0, 1], tf.int64)}
    for trainable in (False, True):
        encoder = SentenceEncoder(dataclasses.replace(small_source, encoder_dir=tmp_path), "avg", trainable=trainable)
        assert not encoder.has_seeded_dropout
        with user_error("dtype: found bfloat16"):
            encoder.in_bfloat16()
        embeddings, dropped = encoder(numbered), encoder(numbered, training=True)
        assert embeddings.dtype == dropped.dtype == tf.float32
        np.testing.assert_allclose(embeddings, expected, atol=0.02)
        assert np.abs(dropped - embeddings).max() > 0.1


class WithoutLayers(tf.Module):
    @tf.function(input_signature=[TOKEN_SPECS])
    def __call__(self, inputs):
        states = tf.cast(inputs["input_word_ids"], tf.float32)[:, :, tf.newaxis]
        return {"sequence_output": states, "pooled_output": states[:, 0]}


class Doubling(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def __call__(self, inputs):
        return 2.0 * inputs


@pytest.mark.parametrize(("module", "part"), [(WithoutLayers, "'encoder_outputs'"), (Doubling, "input_word_ids")])
def test_a_saved_model_without_layers_is_no_encoder(small_source, tmp_path, module, part):
    tf.saved_model.save(module(), str(tmp_path))
    with user_error(str(small_source.bert_hub), part):
        SentenceEncoder(dataclasses.replace(small_source, encoder_dir=tmp_path), "avg", trainable=False)


def test_a_model_without_a_pooler_has_no_pooled_output(trainable):
    kernel = trainable.variables_by_name["pooler_transform/kernel"]
    value = kernel.numpy()
    kernel.assign(tf.zeros_like(kernel))
    with user_error("pooling: found 'cls'", "paper-cls"):
        trainable.with_pooling("cls")
    kernel.assign(value)


def test_a_vocabulary_larger_than_the_embeddings_is_named(small_source, tiny_source):
    mixed = dataclasses.replace(small_source, preprocess_dir=tiny_source.preprocess_dir)
    with user_error(f"{tiny_source.preprocess_dir}: 64 ", " 11 "):
        SentenceEncoder(mixed, "avg", trainable=False)
