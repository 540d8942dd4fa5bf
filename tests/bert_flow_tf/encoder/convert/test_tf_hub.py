"""TF-Hub encoders: a BERT's weights are read, others run as SavedModels."""

import shutil

import msgspec
import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.common.records import EncoderFiles
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.saved_model_encoder import SavedModelFiles
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.encoder.tokenizer import TOKEN_SPECS
from bert_flow_tf.encoder.weights import Pretrained
from tests.refusals import user_error


@pytest.fixture
def save_wrapped(small_hub_dir, tmp_path):
    """A function that saves the encoder with changed outputs."""

    def save(change):
        bert = tf.saved_model.load(str(small_hub_dir / "encoder"))
        wrapped = tf.train.Checkpoint(
            bert=bert,
            variables=bert.variables,
            trainable_variables=bert.trainable_variables,
            regularization_losses=[],
        )
        wrapped.__call__ = tf.function(
            lambda inputs, training: change(bert(inputs, training=training)), autograph=False
        )
        for training in (False, True):
            wrapped.__call__.get_concrete_function(TOKEN_SPECS, training)
        tf.saved_model.save(wrapped, str(tmp_path / "encoder"))
        shutil.copytree(small_hub_dir / "preprocess", tmp_path / "preprocess")
        return tmp_path

    return save


def in_bfloat16(outputs):
    return tf.nest.map_structure(lambda x: tf.cast(x, tf.bfloat16), outputs)


def test_a_bert_is_read_with_its_activation_and_case(small_hub_dir, small_source):
    source = resolve_encoder(bert_hub=small_hub_dir)
    assert (
        isinstance(source.pretrained, Pretrained) and source.fingerprint == small_source.fingerprint
    )
    assert (source.pretrained.config.hidden_act, source.record.do_lower_case) == ("gelu_erf", False)
    # The SavedModel does not show dropout's rates.
    assert source.pretrained.config.hidden_dropout_prob == 0.1


def test_an_encoder_that_is_no_bert_runs_as_its_saved_model(save_wrapped, small_source):
    source = resolve_encoder(bert_hub=save_wrapped(in_bfloat16))
    assert isinstance(source.pretrained, SavedModelFiles)
    inputs = source.tokenizer()(tf.constant(["The cats sat.", "cat"]), 10)
    expected = SentenceEncoder(small_source, "avg", trainable=False)(inputs)
    for trainable in (False, True):
        encoder = SentenceEncoder(source, "avg", trainable=trainable)
        assert len(encoder.trainable_variables) == 23 * trainable
        with user_error("dtype: found bfloat16"):
            encoder.in_bfloat16()
        embeddings, dropped = encoder(inputs), encoder(inputs, training=True, dropout_seed=1)
        assert embeddings.dtype == dropped.dtype == tf.float32
        np.testing.assert_allclose(embeddings, expected, atol=0.02)
        assert np.abs(dropped - embeddings).max() > 0.1


@pytest.mark.parametrize(
    "change",
    [
        lambda outputs: outputs | {"pooled_output": 1.001 * outputs["pooled_output"]},
        lambda outputs: (
            outputs | {"encoder_outputs": [*outputs["encoder_outputs"], outputs["sequence_output"]]}
        ),
    ],
)
def test_a_bert_with_other_outputs_is_not_computed_as_one(save_wrapped, change):
    assert isinstance(resolve_encoder(bert_hub=save_wrapped(change)).pretrained, SavedModelFiles)


def test_a_saved_model_without_layers_is_no_encoder(save_wrapped):
    def without_layers(outputs):
        return {key: value for key, value in outputs.items() if key != "encoder_outputs"}

    folder = save_wrapped(without_layers)
    with user_error(str(folder), "'encoder_outputs'"):
        resolve_encoder(bert_hub=folder)


def test_a_vocabulary_larger_than_the_embeddings_is_named(small_hub_dir, tmp_path):
    folder = shutil.copytree(small_hub_dir, tmp_path / "hub")
    with (folder / "preprocess" / "assets" / "vocab.txt").open("a") as file:
        file.write("more\n")
    with user_error(f"{folder}/preprocess: found 12 ", "at most 11"):
        resolve_encoder(bert_hub=folder)


def test_no_other_program_than_the_recorded_one_is_loaded(small_hub_dir, save_wrapped, tmp_path):
    recorded, copy = (
        resolve_encoder(bert_hub=small_hub_dir).files,
        shutil.copytree(small_hub_dir, tmp_path / "copy"),
    )
    assert (
        resolve_encoder(bert_hub=copy, recorded=recorded).files.files_digest
        == recorded.files_digest
    )
    (copy / "encoder" / "saved_model.pb").write_bytes(b"loaded")
    with user_error(f"{copy}: fingerprint: found", recorded.fingerprint):
        resolve_encoder(bert_hub=copy, recorded=recorded)
    with user_error(f"{copy}: cannot be read"):
        resolve_encoder(bert_hub=copy)
    # A saved model records the fingerprint alone, which for an encoder that is no BERT covers the
    # program.
    folder = save_wrapped(in_bfloat16)
    files = msgspec.structs.replace(resolve_encoder(bert_hub=folder).files, files_digest=None)
    assert resolve_encoder(bert_hub=folder, recorded=files).fingerprint == files.fingerprint
    (folder / "encoder" / "saved_model.pb").write_bytes(b"loaded")
    with user_error(f"{folder}: fingerprint: found", files.fingerprint):
        resolve_encoder(bert_hub=folder, recorded=files)
    assert isinstance(files, EncoderFiles)
