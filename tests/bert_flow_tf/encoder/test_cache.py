"""Cached embeddings are read where they are the same, made where they are not, and never stale."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder import cache
from bert_flow_tf.encoder.tokenizer import Tokenizer
from tests.bert_flow_tf.sample_pairs import VOCAB, make_pairs


def cached(encoder, tokenizer, pairs, folder, **options):
    options = {"max_seq_length": 10} | options
    return cache.cached_embeddings(encoder, tokenizer, pairs.pieces, cache_dir=folder, **options)


def test_cached_embeddings_are_read_not_computed_whatever_their_order(tokenizer, encoder, tmp_path, monkeypatch):
    pairs = make_pairs(tokenizer)
    first = cached(encoder, tokenizer, pairs, tmp_path / "new")
    monkeypatch.setattr(cache, "embed", None)
    np.testing.assert_array_equal(cached(encoder, tokenizer, pairs, tmp_path / "new"), first)
    order = np.random.default_rng(0).permutation(len(first))
    shuffled = dataclasses.replace(pairs, pieces=tf.gather(pairs.pieces, order))
    np.testing.assert_array_equal(cached(encoder, tokenizer, shuffled, tmp_path / "new"), first[order])
    assert len(list((tmp_path / "new").iterdir())) == 1


@pytest.fixture
def quick(monkeypatch):
    """Embeddings that take no encoder: a sentence's are its first id and its length."""

    def embed(encoder, tokenizer, pieces, max_seq_length, pad_to_max):
        values = np.stack([pieces[:, :1].to_tensor(shape=[None, 1])[:, 0], pieces.row_lengths()], axis=1)
        return np.repeat(values, encoder.embedding_size // 2, axis=1).astype(np.float32)

    monkeypatch.setattr(cache, "embed", embed)


@pytest.mark.differs("No cache of records")
@pytest.mark.usefixtures("quick")
def test_no_other_encoder_pooling_padding_length_or_text_reads_them(tokenizer, encoder, tmp_path, monkeypatch):
    pairs = make_pairs(tokenizer)
    cached(encoder, tokenizer, pairs, tmp_path)
    padded = {"pad_to_max": True}
    for i, (other, options) in enumerate(
        [
            (pairs, padded),
            (pairs, padded | {"max_seq_length": 12}),
            (make_pairs(tokenizer, max_seq_length=6), {"max_seq_length": 6}),
            (make_pairs(tokenizer, n=17), {}),
            (make_pairs(Tokenizer(VOCAB[:5] + VOCAB[:4:-1], True)), {}),
        ]
    ):
        cached(encoder, tokenizer, other, tmp_path, **options)
        assert len(list(tmp_path.iterdir())) == i + 2
    files = len(list(tmp_path.iterdir()))
    with monkeypatch.context() as changed:
        changed.setattr(encoder, "source", dataclasses.replace(encoder.source, fingerprint="another"))
        cached(encoder, tokenizer, pairs, tmp_path)
    with monkeypatch.context() as changed:
        changed.setattr(encoder, "sentence_embedding_type", "cls")
        cached(encoder, tokenizer, pairs, tmp_path)
    assert len(list(tmp_path.iterdir())) == files + 2


def test_a_part_of_the_sentences_is_read_from_the_file_of_all_not_computed(tokenizer, encoder, tmp_path, monkeypatch):
    all_of_them, part, more = (
        make_pairs(tokenizer, n=12),
        make_pairs(tokenizer, n=5),
        make_pairs(tokenizer, n=13),
    )
    first = cached(encoder, tokenizer, all_of_them, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(cache, "embed", None)
        np.testing.assert_array_equal(cached(encoder, tokenizer, part, tmp_path), first[: 2 * 5])
        for pairs, folder, options in (
            (more, tmp_path, {}),
            (part, tmp_path / "other", {}),
            (part, tmp_path, {"pad_to_max": True}),
        ):
            with pytest.raises(TypeError):
                cached(encoder, tokenizer, pairs, folder, **options)
    # A folder that was made for nothing is gone.
    assert len(list(tmp_path.iterdir())) == 1
    # A file that is gone is no answer.
    next(tmp_path.iterdir()).unlink()
    np.testing.assert_allclose(cached(encoder, tokenizer, part, tmp_path), first[: 2 * 5], atol=1e-6)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.usefixtures("quick")
def test_a_cache_file_that_is_not_whole_is_made_again(tokenizer, encoder, tmp_path):
    pairs = make_pairs(tokenizer)
    whole = cached(encoder, tokenizer, pairs, tmp_path)
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    for damaged in (data[:-7], data[:40], b"", b"PK\3\4", flipped, bytes(len(data))):
        path.write_bytes(damaged)
        np.testing.assert_array_equal(cached(encoder, tokenizer, pairs, tmp_path), whole)
        assert len(path.read_bytes()) == len(data)


@pytest.mark.usefixtures("quick")
def test_what_another_process_is_making_is_waited_for(tokenizer, encoder, tmp_path, monkeypatch):
    pairs = make_pairs(tokenizer)
    whole = cached(encoder, tokenizer, pairs, tmp_path)
    (path,) = tmp_path.iterdir()
    other = path.rename(path.with_suffix(".other"))
    code = (
        "import pathlib, sys, time\nfrom bert_flow_tf.files.atomic import locked\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "with locked(path):\n    print(flush=True)\n    time.sleep(1)\n    path.with_suffix('.other').rename(path)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    process.stdout.readline()
    monkeypatch.setattr(cache, "embed", None)
    np.testing.assert_array_equal(cached(encoder, tokenizer, pairs, tmp_path), whole)
    assert process.wait() == 0 and not other.exists()
