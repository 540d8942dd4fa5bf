"""A BERT with random weights: TF1's initial values, the same for the same seed, and made once."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.convert.bert_config import read_tf1_config
from bert_flow_tf.encoder.convert.fresh import fresh_encoder, initial_weights
from bert_flow_tf.encoder.source import resolve_encoder
from tests.refusals import user_error


@pytest.fixture(scope="module")
def config_file(golden_dir):
    return golden_dir / "bert_tiny" / "bert_config.json"


def test_weights_are_those_that_tf1_begins_with(config_file):
    config = read_tf1_config(config_file)
    weights = initial_weights(config, seed=3)
    for name, value in weights.items():
        if name.endswith(("/bias", "/beta", "/gamma")):
            np.testing.assert_array_equal(value, float(name.endswith("/gamma")))
        else:
            # A normal distribution cut at two deviations has .88 of its deviation.
            assert np.abs(value).max() <= 2 * config.initializer_range
            assert value.std() == pytest.approx(0.88 * config.initializer_range, rel=0.2)
    again, other = initial_weights(config, seed=3), initial_weights(config, seed=4)
    kernels = [name for name in weights if name.endswith("query/kernel")]
    assert all(np.array_equal(weights[name], again[name]) for name in weights)
    assert len({weights[name].tobytes() for name in kernels} | {other[name].tobytes() for name in kernels}) == 6


def test_it_is_an_encoder_folder_that_is_made_once(config_file, golden_dir, tmp_path):
    vocab_file = golden_dir / "bert_tiny" / "vocab.txt"
    options = {"vocab_file": vocab_file, "seed": 3, "cache_dir": tmp_path}
    folder = fresh_encoder(config_file, **options)
    assert (folder / "vocab.txt").read_bytes() == vocab_file.read_bytes()
    assert resolve_encoder(bert_hub=str(folder)).do_lower_case
    variables = tf.saved_model.load(str(folder / "encoder")).variables
    expected = initial_weights(read_tf1_config(config_file), seed=3)["bert/embeddings/word_embeddings"]
    np.testing.assert_array_equal(next(v for v in variables if "word_embeddings" in v.name), expected)
    turned = tmp_path / "turned.txt"
    first, *rest = vocab_file.read_text().split()
    turned.write_text("".join(f"{piece}\n" for piece in (*rest, first)))
    other = fresh_encoder(config_file, **options | {"vocab_file": turned})
    assert other != folder and (other / "vocab.txt").read_bytes() == turned.read_bytes()
    made = (folder / "source.json").stat().st_mtime_ns
    assert fresh_encoder(config_file, **options) == folder
    assert (folder / "source.json").stat().st_mtime_ns == made


def test_a_vocabulary_is_learned_once_for_each_text_whatever_the_seed(config_file, tmp_path):
    texts = ["w1 w2 w3 "], ["w4 w5 w6"]
    folders = [
        fresh_encoder(config_file, sentences=text, seed=seed, cache_dir=tmp_path) for text in texts for seed in (3, 4)
    ]
    assert len(set(folders)) == 4
    vocabularies = [(folder / "vocab.txt").read_bytes() for folder in folders]
    kept = sorted(path.read_bytes() for path in (tmp_path / "vocabularies").glob("*/vocab.txt"))
    assert kept == sorted({*vocabularies}) == sorted({vocabularies[0], vocabularies[2]}) and len(kept) == 2


def test_a_vocabulary_of_another_size_is_refused(config_file, golden_dir, tmp_path):
    config = json.loads(config_file.read_text()) | {"vocab_size": 65}
    path = tmp_path / "bert_config.json"
    path.write_text(json.dumps(config))
    vocab_file = golden_dir / "bert_tiny" / "vocab.txt"
    with user_error(f"{vocab_file}: found 64 word pieces, expected the configuration's vocab_size, 65"):
        fresh_encoder(path, vocab_file=vocab_file, cache_dir=tmp_path)
    path.write_text(json.dumps(config | {"vocab_size": 2 * 10**9}))
    with user_error("vocab_size", "10000000"):
        fresh_encoder(path, sentences=["w1 w2"], cache_dir=tmp_path)
