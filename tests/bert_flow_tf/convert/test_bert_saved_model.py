"""An encoder's SavedModel is TF-Hub's interface of text encoders, and keeps what makes dropout repeatable."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
from tensorflow.core.protobuf import saved_model_pb2


@pytest.fixture(scope="module")
def loaded(small_encoder_dir):
    return hub.load(str(small_encoder_dir / "encoder"))


@pytest.fixture(scope="module")
def inputs():
    ids = tf.constant([[2, 6, 7, 3, 0], [2, 7, 10, 9, 3]], tf.int32)
    return {"input_word_ids": ids, "input_mask": tf.cast(ids > 0, tf.int32), "input_type_ids": tf.zeros_like(ids)}


def test_it_has_what_hubs_text_encoders_have(loaded, inputs, small_encoder_dir):
    outputs = loaded(inputs)
    assert set(outputs) == {"sequence_output", "pooled_output", "encoder_outputs", "default"}
    np.testing.assert_array_equal(outputs["default"], outputs["pooled_output"])
    np.testing.assert_array_equal(outputs["sequence_output"], outputs["encoder_outputs"][-1])
    names = {variable.name for variable in loaded.trainable_variables}
    assert names == {variable.name for variable in loaded.variables} and "word_embeddings/embeddings:0" in names
    with open(loaded.vocab_file.asset_path.numpy(), "rb") as vocabulary:
        assert vocabulary.read() == (small_encoder_dir / "vocab.txt").read_bytes()
    assert not loaded.do_lower_case.numpy()


def test_it_holds_no_more_than_a_function_for_training_and_one_without_dropout(small_encoder_dir):
    saved = saved_model_pb2.SavedModel.FromString((small_encoder_dir / "encoder" / "saved_model.pb").read_bytes())
    names = [function.signature.name for function in saved.meta_graphs[0].graph_def.library.function]
    assert len([name for name in names if "traced" not in name]) == 2, names


def test_dropout_is_in_training_alone_and_goes_on_from_its_state(loaded, inputs):
    still = loaded(inputs, training=False)["sequence_output"]
    np.testing.assert_array_equal(loaded(inputs)["sequence_output"], still)
    before = [state.numpy() for state in loaded.dropout_state]
    assert len(before) > 1
    first = loaded(inputs, training=True)["sequence_output"]
    assert np.abs(first - still).max() > 1e-2
    assert np.abs(loaded(inputs, training=True)["sequence_output"] - first).max() > 1e-2
    for state, value in zip(loaded.dropout_state, before, strict=True):
        assert np.any(state.numpy() != value)
        state.assign(value)
    np.testing.assert_array_equal(loaded(inputs, training=True)["sequence_output"], first)
