"""Sharing of encoders between the commands of a process."""

import msgspec
import numpy as np
import tensorflow as tf

from bert_flow_tf.encoder.layer import SentenceEncoder, frozen_encoder, sharing_encoders
from bert_flow_tf.encoder.stream import embed
from bert_flow_tf.model.build import build_model, encoder_record
from bert_flow_tf.runs.record import Model


def _share_variables(encoder, other):
    return encoder.variables[0] is other.variables[0]


def test_an_encoder_is_loaded_once_and_traced_once(tiny_source, small_source, tokenizer):
    pieces, encoder = tf.ragged.constant([[5, 6], [7], [8, 9, 10]], tf.int32), frozen_encoder(small_source, "avg")
    alone = {kind: embed(encoder.with_pooling(kind), tokenizer, pieces, 10) for kind in ("avg", "cls")}
    with sharing_encoders():
        first = frozen_encoder(small_source, "avg")
        assert not _share_variables(first, encoder)
        for kind in ("avg", "cls", "avg"):
            shared = frozen_encoder(small_source, kind)
            assert _share_variables(shared, first)
            np.testing.assert_array_equal(embed(shared, tokenizer, pieces, 10), alone[kind])
        assert shared.traced_embed.experimental_get_tracing_count() == 1
        assert frozen_encoder(tiny_source, "avg").source == tiny_source
        with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
            assert not _share_variables(frozen_encoder(small_source, "avg"), first)


def test_what_training_changes_is_not_shared(small_source):
    record = Model(encoder=encoder_record(small_source), pooling="avg", max_seq_length=10)
    trained = msgspec.structs.replace(record, encoder=msgspec.structs.replace(record.encoder, fingerprint=None))
    inputs = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), tf.ones([2, 5], tf.int32))
    inputs["occurrence"] = tf.constant([0, 1], tf.int64)
    alone = SentenceEncoder(small_source, "avg", trainable=False)(inputs, training=True)
    with sharing_encoders():
        other = build_model(small_source, record, seed=5).encoder
        assert np.abs(other(inputs, training=True) - alone).max() > 1e-2
        shared = build_model(small_source, record).encoder
        assert _share_variables(other, shared)
        # A later run has its own seed.
        np.testing.assert_array_equal(shared(inputs, training=True), alone)
        for model in (build_model(small_source, trained), build_model(small_source, record, trainable=True)):
            assert not _share_variables(model.encoder, shared)
