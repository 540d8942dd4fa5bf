"""An encoder's SavedModel is TF-Hub's interface of text encoders."""

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
from tensorflow.core.protobuf import saved_model_pb2

from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS


def test_it_has_what_hubs_text_encoders_have(small_encoder_dir):
    loaded = hub.load(str(small_encoder_dir / "encoder"))
    outputs = loaded(dict.fromkeys(TOKEN_INPUTS, tf.ones([2, 5], tf.int32)))
    assert set(outputs) == {"sequence_output", "pooled_output", "encoder_outputs", "default"}
    np.testing.assert_array_equal(outputs["default"], outputs["pooled_output"])
    np.testing.assert_array_equal(outputs["sequence_output"], outputs["encoder_outputs"][-1])
    names = {variable.name for variable in loaded.trainable_variables}
    assert names == {variable.name for variable in loaded.variables} and "word_embeddings/embeddings:0" in names
    with open(loaded.vocab_file.asset_path.numpy(), "rb") as vocabulary:
        assert vocabulary.read() == (small_encoder_dir / "vocab.txt").read_bytes()
    assert not loaded.do_lower_case.numpy()
    assert len(loaded.dropout_state) > 1


def test_it_holds_no_more_than_a_function_for_training_and_one_without_dropout(small_encoder_dir):
    saved = saved_model_pb2.SavedModel.FromString((small_encoder_dir / "encoder" / "saved_model.pb").read_bytes())
    names = [function.signature.name for function in saved.meta_graphs[0].graph_def.library.function]
    assert len([name for name in names if "traced" not in name]) == 2, names
