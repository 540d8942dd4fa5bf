"""Embeddings of sentences on disk, under a digest of what made them."""

import contextlib
import hashlib
import io
import os
import pathlib
import weakref

import numpy as np
import tensorflow as tf
from absl import logging

from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.stream import distinct, embed, row_keys
from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.files.atomic import new_file
from bert_flow_tf.files.digest import file_digest
from bert_flow_tf.files.embedding_files import write_array
from bert_flow_tf.files.locks import locked
from bert_flow_tf.files.reading import read_file

_CACHE_VERSION = 4
_DIGEST_SIZE = hashlib.sha256().digest_size
# SentenceEncoder -> what made its embeddings that were last read or written, their file, and their sentences.
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
    """As `stream.embed`, with the embeddings of the different sentences kept on disk, in an order of their own.

    The file `embeddings-KEY.npy` in `cache_dir` is named by a digest of the encoder, its pooling, the padding and
    the ids of all different sentences, so another encoder, vocabulary, pooling, length or text never reads it, and the
    order of the data, which depends on the seed, makes no difference. It ends with the SHA-256 of what comes before; a
    damaged file is recomputed. A part of the sentences that the same encoder object embedded last, as the test set is
    of all splits, is read from their file. Where another process makes the file, this one waits for it.

    The encoder must have the weights of its source.

    Raises:
      UserError: the folder cannot be made or written to, or a file in it cannot be read.
    """
    padding = f"padded to {max_seq_length}" if pad_to_max else "padded to the longest"
    made_by = [_CACHE_VERSION, encoder.source.fingerprint, encoder.sentence_embedding_type, padding]
    if tf.config.optimizer.get_jit():
        made_by.append("XLA")
    digest = hashlib.sha256(repr(made_by).encode())
    sentences, rows = distinct(pieces)
    for array in (sentences.flat_values.numpy(), sentences.row_lengths().numpy()):
        digest.update(array.tobytes())
    path = pathlib.Path(cache_dir) / f"embeddings-{digest.hexdigest()[:24]}.npy"
    shape = (int(sentences.nrows()), encoder.embedding_size)
    embeddings = _read(path, shape)
    if embeddings is None:
        embeddings = _part_of_last_used(encoder, made_by, path, sentences)
        if embeddings is not None:
            return embeddings[rows]
        # Before the work, which would be lost in a folder that may not be written to.
        with locked(path, wait=True):
            embeddings = _read(path, shape)
            if embeddings is None:
                with new_file(path) as part:
                    embeddings = embed(encoder, tokenizer, sentences, max_seq_length, pad_to_max=pad_to_max)
                    _write(part, embeddings)
    _LAST_USED[encoder] = made_by, path, sentences
    return embeddings[rows]


def _write(path: pathlib.Path, embeddings: np.ndarray) -> None:
    write_array(path, embeddings)
    digest = bytes.fromhex(file_digest(path))
    with path.open("ab") as file:
        file.write(digest)


def _read(path: pathlib.Path, shape: tuple[int, int]) -> np.ndarray | None:
    """The float32 array of a cache's file; None where there is none, or, with a warning, where it is damaged."""
    if not path.exists():
        return None
    data = read_file(path, "a cache's file")
    embeddings = None
    if hashlib.sha256(memoryview(data)[:-_DIGEST_SIZE]).digest() == data[-_DIGEST_SIZE:]:
        with contextlib.suppress(ValueError):
            embeddings = np.load(io.BytesIO(data))
    if embeddings is None or embeddings.shape != shape or embeddings.dtype != np.float32:
        logging.warning("%s is damaged and is recomputed", path)
        return None
    logging.info("Embeddings read from %s", path)
    return embeddings


def _part_of_last_used(
    encoder: SentenceEncoder, made_by: list, path: pathlib.Path, sentences: tf.RaggedTensor
) -> np.ndarray | None:
    """Embeddings of the sentences from the file beside `path` that this encoder used last; None if one is not there."""
    last_made_by, last_path, last_sentences = _LAST_USED.get(encoder, (None, None, None))
    if last_made_by != made_by or last_path.parent != path.parent or last_path == path:
        return None
    row_of = {key: row for row, key in enumerate(row_keys(last_sentences))}
    keys = row_keys(sentences)
    if not row_of.keys() >= set(keys):
        return None
    embeddings = _read(last_path, (int(last_sentences.nrows()), encoder.embedding_size))
    return None if embeddings is None else embeddings[[row_of[key] for key in keys]]
