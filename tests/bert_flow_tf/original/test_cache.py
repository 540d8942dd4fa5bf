"""Cached embeddings are read if they are the same, and never stale."""

import contextlib
import types

import numpy as np
import pytest
import tensorflow as tf

from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.encoder.weights import TextRules
from bert_flow_tf.original import cache
from tests.bert_flow_tf.sample_pairs import VOCAB, make_pairs


def encoder_like(fingerprint="a", pooling="avg"):
    """The attributes of a `SentenceEncoder` that the cache reads."""
    return types.SimpleNamespace(
        source=types.SimpleNamespace(fingerprint=fingerprint), sentence_embedding_type=pooling
    )


@pytest.fixture
def cached(tokenizer, tmp_path, monkeypatch):
    """A function that caches embeddings; `cached.computed` counts its computations.

    A sentence's embedding is its first id and its length, so that no encoder is needed.
    """

    def embed(encoder, tokenizer, pieces, max_seq_length, pad_to_max):
        call.computed += 1
        return np.stack(
            [pieces[:, :1].to_tensor(shape=[None, 1])[:, 0], pieces.row_lengths()], axis=1
        )

    def call(pieces, encoder=None, max_seq_length=10, **options):
        encoder = encoder or encoder_like()
        return cache.cached_embeddings(
            encoder, tokenizer, pieces, max_seq_length, cache_dir=tmp_path, **options
        )

    monkeypatch.setattr(cache, "embed", embed)
    call.computed = 0
    return call


@pytest.fixture
def pieces(tokenizer):
    """Function (n) that gives the word pieces of n pairs."""
    return lambda n=6, **options: make_pairs(tokenizer, n=n, **options).pieces


@pytest.mark.differs("No cache of records")
def test_the_same_is_read_in_any_order_and_others_are_not(cached, pieces, tmp_path):
    first, order = cached(pieces()), np.random.default_rng(0).permutation(12)
    np.testing.assert_array_equal(cached(tf.gather(pieces(), order)), first[order])
    assert cached.computed == len(list(tmp_path.iterdir())) == 1
    others = make_pairs(Tokenizer(VOCAB[:5] + VOCAB[:4:-1], TextRules(do_lower_case=True))).pieces
    for i, (each, options) in enumerate(
        [
            (pieces(), {"pad_to_max": True}),
            (pieces(), {"pad_to_max": True, "max_seq_length": 12}),
            (pieces(max_seq_length=6), {"max_seq_length": 6}),
            (pieces(17), {}),
            (others, {}),
            (pieces(), {"encoder": encoder_like("another")}),
            (pieces(), {"encoder": encoder_like(pooling="cls")}),
        ],
        start=2,
    ):
        cached(each, **options)
        assert cached.computed == len(list(tmp_path.iterdir())) == i


def test_a_damaged_cache_file_is_computed_again(cached, pieces, tmp_path):
    whole = cached(pieces())
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    middle = len(data) // 2
    flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    for damaged in (data[:-7], data[:40], b"", b"PK\3\4", flipped, bytes(len(data))):
        path.write_bytes(damaged)
        np.testing.assert_array_equal(cached(pieces()), whole)
        assert len(path.read_bytes()) == len(data)


def test_what_another_computed_meanwhile_is_read(cached, pieces, tmp_path, monkeypatch):
    whole = cached(pieces())
    (path,) = tmp_path.iterdir()
    other = path.rename(tmp_path / "other")

    @contextlib.contextmanager
    def locked(path, wait):
        other.rename(path)
        yield

    monkeypatch.setattr(cache, "locked", locked)
    np.testing.assert_array_equal(cached(pieces()), whole)
    assert cached.computed == 1
