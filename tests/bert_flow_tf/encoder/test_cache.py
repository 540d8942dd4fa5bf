"""Cached embeddings are read if they are the same, and never stale."""

import threading
import time
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder import cache
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.files.atomic import locked
from tests.bert_flow_tf.sample_pairs import VOCAB, make_pairs


class Encoder:
    """The attributes of a `SentenceEncoder` that the cache reads."""

    def __init__(self, fingerprint="a", pooling="avg"):
        self.source, self.sentence_embedding_type = types.SimpleNamespace(fingerprint=fingerprint), pooling


@pytest.fixture
def cached(tokenizer, tmp_path, monkeypatch):
    """A function that caches embeddings; `cached.computed` counts its computations.

    A sentence's embedding is its first id and its length, so that no encoder is needed.
    """
    encoder = Encoder()

    def embed(encoder, tokenizer, pieces, max_seq_length, pad_to_max):
        call.computed += 1
        return np.stack([pieces[:, :1].to_tensor(shape=[None, 1])[:, 0], pieces.row_lengths()], axis=1)

    def call(pieces, encoder=encoder, folder=tmp_path / "cache", max_seq_length=10, **options):
        return cache.cached_embeddings(encoder, tokenizer, pieces, max_seq_length, cache_dir=folder, **options)

    monkeypatch.setattr(cache, "embed", embed)
    call.computed = 0
    return call


@pytest.fixture
def pieces(tokenizer):
    """Function (n) that gives the word pieces of n pairs."""
    return lambda n=6, **options: make_pairs(tokenizer, n=n, **options).pieces


def test_cached_embeddings_are_read_in_any_order(cached, pieces, tmp_path):
    first, order = cached(pieces()), np.random.default_rng(0).permutation(12)
    np.testing.assert_array_equal(cached(pieces()), first)
    np.testing.assert_array_equal(cached(tf.gather(pieces(), order), Encoder()), first[order])
    assert cached.computed == len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.differs("No cache of records")
def test_whatever_else_made_them_has_its_own_file(cached, pieces, tmp_path):
    others = make_pairs(Tokenizer(VOCAB[:5] + VOCAB[:4:-1], True)).pieces
    for i, (each, options) in enumerate(
        [
            (pieces(), {}),
            (pieces(), {"pad_to_max": True}),
            (pieces(), {"pad_to_max": True, "max_seq_length": 12}),
            (pieces(max_seq_length=6), {"max_seq_length": 6}),
            (pieces(17), {}),
            (others, {}),
            (pieces(), {"encoder": Encoder("another")}),
            (pieces(), {"encoder": Encoder(pooling="cls")}),
        ]
    ):
        cached(each, **options)
        assert cached.computed == len(list((tmp_path / "cache").iterdir())) == i + 1


def test_a_damaged_cache_file_is_computed_again(cached, pieces, tmp_path):
    whole = cached(pieces())
    (path,) = (tmp_path / "cache").iterdir()
    data = path.read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    for damaged in (data[:-7], data[:40], b"", b"PK\3\4", flipped, bytes(len(data))):
        path.write_bytes(damaged)
        np.testing.assert_array_equal(cached(pieces()), whole)
        assert len(path.read_bytes()) == len(data)


def test_what_another_is_computing_is_waited_for(cached, pieces, tmp_path):
    whole = cached(pieces())
    (path,) = (tmp_path / "cache").iterdir()
    other, is_locked = path.rename(tmp_path / "other"), threading.Event()

    def compute():
        with locked(path):
            is_locked.set()
            time.sleep(0.2)
            other.rename(path)

    thread = threading.Thread(target=compute)
    thread.start()
    is_locked.wait()
    np.testing.assert_array_equal(cached(pieces()), whole)
    thread.join()
    assert cached.computed == 1
