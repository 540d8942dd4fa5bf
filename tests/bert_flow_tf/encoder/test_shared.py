"""What the commands of one process share of an encoder, and what they do not."""

import msgspec
import numpy as np
import tensorflow as tf

from bert_flow_tf.encoder.layer import SentenceEncoder, frozen_encoder, sharing_encoders
from bert_flow_tf.encoder.stream import embed
from bert_flow_tf.model.build import build_model, encoder_record
from bert_flow_tf.runs.record import Model
from tests.bert_flow_tf import small_runs
from tests.bert_flow_tf.sample_pairs import make_pairs


def _share_variables(encoder, other):
    return encoder.variables[0] is other.variables[0]


def test_an_encoder_is_loaded_once_and_traced_once_for_each_pooling(tiny_source, tokenizer):
    pieces = make_pairs(tokenizer).pieces
    alone = {}
    for kind in ("avg", "cls"):
        alone[kind] = embed(SentenceEncoder(tiny_source, kind, trainable=False), tokenizer, pieces, 10)
    with sharing_encoders():
        first = frozen_encoder(tiny_source, "avg")
        for kind in ("avg", "cls", "avg"):
            encoder = frozen_encoder(tiny_source, kind)
            assert _share_variables(encoder, first)
            np.testing.assert_array_equal(embed(encoder, tokenizer, pieces, 10), alone[kind])
        assert encoder.traced_embed.experimental_get_tracing_count() == 1
        # `cached_embeddings` knows an object's last file, which is the last command's.
        assert encoder is not first
    assert not _share_variables(frozen_encoder(tiny_source, "avg"), first)


def test_another_encoder_or_strategy_has_variables_of_its_own(tiny_source, small_source):
    with sharing_encoders():
        first = frozen_encoder(tiny_source, "avg")
        assert frozen_encoder(small_source, "avg").source == small_source
        with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
            assert not _share_variables(frozen_encoder(tiny_source, "avg"), first)


def test_variables_that_training_or_a_checkpoint_changes_are_not_shared(tiny_source):
    record = Model(encoder=encoder_record(tiny_source), pooling="avg", max_seq_length=10)
    trained = msgspec.structs.replace(record, encoder=msgspec.structs.replace(record.encoder, fingerprint=None))
    with sharing_encoders():
        shared = build_model(tiny_source, record).encoder
        for model in (build_model(tiny_source, trained), build_model(tiny_source, record, trainable=True)):
            assert not _share_variables(model.encoder, shared)
        assert _share_variables(build_model(tiny_source, record).encoder, shared)


def test_a_run_draws_the_same_dropout_whatever_ran_before_it(small_encoder_dir, tmp_path):
    settings = small_runs.flow_values(tmp_path, small_encoder_dir, cache_embeddings=False, num_train_epochs=1.0)
    alone = small_runs.run(settings, exp_name="alone")
    with sharing_encoders():
        small_runs.run(settings, exp_name="before", seed=5)
        after = small_runs.run(settings, exp_name="after")
    small_runs.assert_same_bits(alone, after)
