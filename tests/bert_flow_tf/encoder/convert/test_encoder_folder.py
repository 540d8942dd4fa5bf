"""An encoder's SavedModels have the interfaces of TF-Hub's."""

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub
from tensorflow.core.protobuf import saved_model_pb2

from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS


def test_encoder_has_the_parts_of_tf_hubs(small_encoder_dir):
    loaded = hub.load(str(small_encoder_dir / "encoder"))
    outputs = loaded(dict.fromkeys(TOKEN_INPUTS, tf.ones([2, 5], tf.int32)))
    assert set(outputs) == {"sequence_output", "pooled_output", "encoder_outputs", "default"}
    np.testing.assert_array_equal(outputs["default"], outputs["pooled_output"])
    names = {variable.name for variable in loaded.trainable_variables}
    assert names == {variable.name for variable in loaded.variables} and "word_embeddings/embeddings:0" in names
    with open(loaded.vocab_file.asset_path.numpy(), "rb") as vocabulary:
        assert vocabulary.read() == (small_encoder_dir / "vocab.txt").read_bytes()
    assert not loaded.do_lower_case.numpy()
    # One function for training and one without dropout: others would take seconds to load.
    saved = saved_model_pb2.SavedModel.FromString((small_encoder_dir / "encoder" / "saved_model.pb").read_bytes())
    names = [function.signature.name for function in saved.meta_graphs[0].graph_def.library.function]
    assert len([name for name in names if "traced" not in name]) == 2, names


def test_preprocess_gives_an_encoders_inputs_by_parts(small_encoder_dir):
    preprocess = hub.load(str(small_encoder_dir / "preprocess"))
    sentences = tf.constant(["The cats sat.", "the dog"])
    inputs = preprocess(sentences)
    assert {value.shape.as_list()[1] for value in inputs.values()} == {128}
    assert inputs["input_word_ids"][:, :7].numpy().tolist() == [[2, 5, 7, 8, 9, 10, 3], [2, 6, 1, 3, 0, 0, 0]]
    assert tf.reduce_sum(inputs["input_mask"], axis=1).numpy().tolist() == [7, 4]
    assert not np.any(inputs["input_type_ids"])
    tokens = preprocess.tokenize(sentences)
    assert tokens.to_list() == [[[5], [7, 8], [9], [10]], [[6], [1]]]
    packed = preprocess.bert_pack_inputs([tokens, tokens], seq_length=tf.constant(12))
    assert packed["input_word_ids"][1].numpy().tolist() == [2, 6, 1, 3, 6, 1, 3, 0, 0, 0, 0, 0]
    assert packed["input_type_ids"][1].numpy().tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0]
    special = {name: int(value) for name, value in preprocess.tokenize.get_special_tokens_dict().items()}
    ids = {"padding_id": 0, "start_of_sequence_id": 2, "end_of_segment_id": 3, "mask_id": 4}
    assert special == ids | {"vocab_size": 11}
