"""The preprocess SavedModel has the parts of TF-Hub's preprocess models."""

import numpy as np
import tensorflow as tf
import tensorflow_hub as hub

SENTENCES = ["The cats sat.", "the dog"]


def test_sentences_become_the_dict_that_an_encoder_takes_whole_or_by_parts(small_encoder_dir):
    preprocess = hub.load(str(small_encoder_dir / "preprocess"))
    inputs = preprocess(tf.constant(SENTENCES))
    assert {value.shape.as_list()[1] for value in inputs.values()} == {128}
    assert inputs["input_word_ids"][:, :7].numpy().tolist() == [[2, 5, 7, 8, 9, 10, 3], [2, 6, 1, 3, 0, 0, 0]]
    assert tf.reduce_sum(inputs["input_mask"], axis=1).numpy().tolist() == [7, 4]
    assert not np.any(inputs["input_type_ids"])
    tokens = preprocess.tokenize(tf.constant(SENTENCES))
    assert tokens.to_list() == [[[5], [7, 8], [9], [10]], [[6], [1]]]
    packed = preprocess.bert_pack_inputs([tokens, tokens], seq_length=tf.constant(12))
    assert packed["input_word_ids"][1].numpy().tolist() == [2, 6, 1, 3, 6, 1, 3, 0, 0, 0, 0, 0]
    assert packed["input_type_ids"][1].numpy().tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0]
    special = {name: int(value) for name, value in preprocess.tokenize.get_special_tokens_dict().items()}
    ids = {"padding_id": 0, "start_of_sequence_id": 2, "end_of_segment_id": 3, "mask_id": 4}
    assert special == ids | {"vocab_size": 11}
