"""An encoder's weights for the peers."""

import json
import shutil

import numpy as np
import pytest

from bert_flow_tf.errors import UserError


def test_the_folder_converts_back_to_the_same_weights(tiny_source, tmp_path):
    from benchmarks.hugging_face_folder import write_hugging_face_folder
    from bert_flow_tf.encoder.convert.bert_config import read_tf1_config
    from bert_flow_tf.encoder.convert.families import read_hugging_face_config
    from bert_flow_tf.encoder.convert.from_huggingface import read_hugging_face_weights
    from bert_flow_tf.encoder.convert.weights import keras_names, to_tf1_shape
    from bert_flow_tf.encoder.layer import SentenceEncoder

    encoder_folder = tiny_source.encoder_dir.parent
    write_hugging_face_folder(str(encoder_folder), tmp_path / "weights")
    config = read_hugging_face_config(tmp_path / "weights" / "config.json")
    assert config == read_tf1_config(encoder_folder / "bert_config.json")
    found = read_hugging_face_weights(tmp_path / "weights", config)
    variables = SentenceEncoder(tiny_source, "avg", trainable=False).variables_by_name
    for tf1_name, keras_name in keras_names(config.num_hidden_layers).items():
        expected = to_tf1_shape(tf1_name, variables[keras_name].numpy())
        np.testing.assert_array_equal(found[tf1_name], expected, err_msg=tf1_name)
    assert (tmp_path / "weights" / "vocab.txt").read_bytes() == (encoder_folder / "vocab.txt").read_bytes()
    tokenizer = json.loads((tmp_path / "weights" / "tokenizer_config.json").read_text())
    assert tokenizer["do_lower_case"] is tiny_source.do_lower_case


def test_an_encoder_without_a_configuration_is_named(tiny_source, tmp_path):
    from benchmarks.hugging_face_folder import write_hugging_face_folder

    encoder = shutil.copytree(tiny_source.encoder_dir.parent, tmp_path / "encoder")
    for name in ("bert_config.json", "source.json"):
        (encoder / name).unlink()
    with pytest.raises(UserError, match=r"encoder: found no .*bert_config.json, expected demo or a folder"):
        write_hugging_face_folder(str(encoder), tmp_path / "weights")
    assert not (tmp_path / "weights").exists()
