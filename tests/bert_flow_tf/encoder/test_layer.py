"""The encoder layer's dropout, its sharing, and encoders that are no BERT."""

import dataclasses

import msgspec
import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.layer import SentenceEncoder, frozen_encoder, sharing_encoders
from bert_flow_tf.encoder.stream import embed
from bert_flow_tf.encoder.tokenizer import TOKEN_SPECS, Tokenizer
from bert_flow_tf.model.build import build_model, encoder_record
from bert_flow_tf.runs.record import Model
from tests.refusals import user_error


@pytest.fixture(scope="module")
def small_inputs(small_source):
    return Tokenizer.from_source(small_source)(tf.constant(["The cats sat.", "cat"]), 10)


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
    # A frozen encoder drops out as well.
    frozen = SentenceEncoder(small_source, "avg", trainable=False)
    frozen.dropout_seed = 5
    np.testing.assert_allclose(frozen(numbered, training=True), first, atol=5e-6)
    encoder.dropout_seed = 6
    assert np.abs(embeddings([0, 1]) - first).max() > 1e-2


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


def test_a_saved_model_without_layers_is_no_encoder(small_source, tmp_path):
    tf.saved_model.save(WithoutLayers(), str(tmp_path))
    with user_error(str(small_source.bert_hub), "'encoder_outputs'"):
        SentenceEncoder(dataclasses.replace(small_source, encoder_dir=tmp_path), "avg", trainable=False)


def test_a_model_without_a_pooler_has_no_pooled_output(tiny_source):
    encoder = SentenceEncoder(tiny_source, "avg", trainable=True)
    kernel = encoder.variables_by_name["pooler_transform/kernel"]
    kernel.assign(tf.zeros_like(kernel))
    with user_error("pooling: found 'cls'", "paper-cls"):
        encoder.with_pooling("cls")


def test_a_vocabulary_larger_than_the_embeddings_is_named(small_source, tiny_source):
    mixed = dataclasses.replace(small_source, preprocess_dir=tiny_source.preprocess_dir)
    with user_error(f"{tiny_source.preprocess_dir}: found 64 ", "at most 11"):
        SentenceEncoder(mixed, "avg", trainable=False)


def _share_variables(encoder, other):
    return encoder.variables[0] is other.variables[0]


def test_an_encoder_is_loaded_once_and_traced_once(tiny_source, small_source, tokenizer):
    pieces, encoder = tf.ragged.constant([[5, 6], [7], [8, 9, 10]], tf.int32), frozen_encoder(small_source, "avg")
    with sharing_encoders():
        first = frozen_encoder(small_source, "avg")
        assert not _share_variables(first, encoder)
        for kind in ("avg", "cls", "avg"):
            shared = frozen_encoder(small_source, kind)
            assert _share_variables(shared, first)
            expected = embed(encoder.with_pooling(kind), tokenizer, pieces, 10)
            np.testing.assert_array_equal(embed(shared, tokenizer, pieces, 10), expected)
        assert shared.traced_embed.experimental_get_tracing_count() == 1
        assert frozen_encoder(tiny_source, "avg").source == tiny_source
        with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
            assert not _share_variables(frozen_encoder(small_source, "avg"), first)


def test_what_training_changes_is_not_shared(small_source):
    record = Model(encoder=encoder_record(small_source), pooling="avg", max_seq_length=10)
    trained = msgspec.structs.replace(record, encoder=msgspec.structs.replace(record.encoder, fingerprint=None))
    with sharing_encoders():
        other = build_model(small_source, record, seed=5).encoder
        assert other.dropout_seed == 5
        shared = build_model(small_source, record).encoder
        # A later run has its own seed.
        assert _share_variables(other, shared) and shared.dropout_seed == 0
        for model in (build_model(small_source, trained), build_model(small_source, record, trainable=True)):
            assert not _share_variables(model.encoder, shared)
