"""Cached embeddings are read if they are the same, and never stale."""

import contextlib
import types

import numpy as np
import pytest

from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.encoder.weights import TextRules
from bert_flow_tf.original import cache
from tests.bert_flow_tf.sample_pairs import VOCAB, make_pairs


@pytest.fixture
def cached(tmp_path):
    """A function that caches embeddings; `cached.computed` counts its computations.

    A sentence's embedding is its first id and its length, so that no encoder is needed.
    """

    def embed_rows(rows):
        call.computed += 1
        return np.array([[row[0] if len(row) else 0, len(row)] for row in rows])

    def call(rows, fingerprint="a", max_seq_length=10, pad_to_max=False):
        encoder = types.SimpleNamespace(
            recipe={"fingerprint": fingerprint, "max_seq_length": max_seq_length},
            pad_to_max=pad_to_max,
            embed_rows=embed_rows,
        )
        return cache.cached_embeddings(encoder, rows, tmp_path)

    call.computed = 0
    return call


@pytest.fixture
def pieces(tokenizer):
    """Function (n) that gives the word pieces of n pairs."""
    return lambda n=6, **options: make_pairs(tokenizer, n=n, **options).pieces


@pytest.mark.differs("No cache of records")
def test_the_same_is_read_in_any_order_and_others_are_not(cached, pieces, tmp_path):
    first, order = cached(pieces()), np.random.default_rng(0).permutation(12)
    np.testing.assert_array_equal(cached([pieces()[i] for i in order]), first[order])
    assert cached.computed == len(list(tmp_path.iterdir())) == 1
    others = make_pairs(Tokenizer(VOCAB[:5] + VOCAB[:4:-1], TextRules(do_lower_case=True))).pieces
    for i, (each, options) in enumerate(
        [
            (pieces(), {"pad_to_max": True}),
            (pieces(), {"pad_to_max": True, "max_seq_length": 12}),
            (pieces(max_seq_length=6), {"max_seq_length": 6}),
            (pieces(17), {}),
            (others, {}),
            (pieces(), {"fingerprint": "another"}),
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
