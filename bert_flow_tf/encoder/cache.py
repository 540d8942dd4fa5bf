"""Embeddings of sentences on disk, under a digest of what made them."""

import hashlib
import os
import pathlib
import weakref

import numpy as np
import tensorflow as tf
from absl import logging

from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.stream import distinct, embed, row_keys
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import locked, new_file
from bert_flow_tf.files.reading import reading

_CACHE_VERSION = 5
# SentenceEncoder -> what made the embeddings that it last read or wrote, their file, and each sentence's row.
_LAST_USED: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def cached_embeddings(
    encoder: SentenceEncoder,
    tokenizer: Tokenizer,
    pieces: tf.RaggedTensor,
    max_seq_length: int,
    *,
    cache_dir: str | os.PathLike,
    pad_to_max: bool = False,
) -> np.ndarray:
    """`stream.embed` with a cache on disk of the embeddings of all different sentences.

    The file `embeddings-KEY.npz` in `cache_dir` is named by a digest of the encoder, its pooling, the padding and the
    ids of all different sentences in any order. A damaged file is computed again. A part of the sentences that the same
    encoder object embedded last, such as the test set, is read from their file. The encoder has its source's weights.
    """
    padding = f"padded to {max_seq_length}" if pad_to_max else "padded to the longest"
    made_by = [_CACHE_VERSION, encoder.source.fingerprint, encoder.sentence_embedding_type, padding]
    made_by += ["XLA"] if tf.config.optimizer.get_jit() else []
    digest = hashlib.sha256(repr(made_by).encode())
    sentences, rows = distinct(pieces)
    digest.update(sentences.flat_values.numpy().tobytes() + sentences.row_lengths().numpy().tobytes())
    path = pathlib.Path(cache_dir) / f"embeddings-{digest.hexdigest()[:24]}.npz"
    if (embeddings := _read(path)) is None:
        last_made_by, last_path, last_rows = _LAST_USED.get(encoder, (None, path, {}))
        if last_made_by == made_by and last_path.parent == path.parent and last_path != path:
            found = [last_rows.get(key) for key in row_keys(sentences)]
            if None not in found and (last := _read(last_path)) is not None:
                return last[found][rows]
        # The lock comes before the work, which a folder without write permission would lose.
        with locked(path, wait=True):
            if (embeddings := _read(path)) is None:
                with new_file(path) as file, file.open("wb") as stream:
                    embeddings = embed(encoder, tokenizer, sentences, max_seq_length, pad_to_max=pad_to_max)
                    np.savez(stream, embeddings=embeddings)
    _LAST_USED[encoder] = made_by, path, {key: row for row, key in enumerate(row_keys(sentences))}
    return embeddings[rows]


def _read(path: pathlib.Path) -> np.ndarray | None:
    """The embeddings in a file; None without a file and, with a warning, where its checksum shows damage."""
    try:
        with reading(path, "cached embeddings"), np.load(path) as arrays:
            logging.info("Embeddings read from %s", path)
            return arrays["embeddings"]
    except UserError as error:
        if path.exists():
            logging.warning("%s; it is computed again", error)
        return None
