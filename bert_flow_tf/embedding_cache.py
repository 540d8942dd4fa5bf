"""Embeddings of sentences on disk, under a digest of what made them."""

import hashlib
import io
import os
import pathlib
import tempfile
import weakref
import zipfile

import numpy as np
import tensorflow as tf
from absl import logging

from bert_flow_tf.atomic import make_directory
from bert_flow_tf.embedding import distinct, embed, row_keys
from bert_flow_tf.errors import UserError

_CACHE_VERSION = 3
# SentenceEncoder -> what made its embeddings that were last read or written, their file, and their sentences.
_KEPT = weakref.WeakKeyDictionary()


def cached_embeddings(encoder, tokenizer, pieces, max_seq_length, *, cache_dir, pad_to_max=False):
    """As `embed`, kept on disk under what made it, each different sentence once and in an order of their own.

    The file `embeddings-KEY.npy` in `cache_dir` is named by a digest of the encoder, its pooling, the padding and
    the ids of all different sentences, so another encoder, vocabulary, pooling, length or text never meets it, and the
    order of the data, which the seed draws, makes no difference. A file that is not whole is made again. A part of the
    sentences that the same encoder object embedded last, as the test set is of all splits, is read from their file.

    Args:
      encoder: `SentenceEncoder`, with the weights of its source.
      cache_dir: folder, made if it is not there.

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
        digest.update(np.ascontiguousarray(array))
    path = pathlib.Path(cache_dir) / f"embeddings-{digest.hexdigest()[:24]}.npy"
    embeddings = _read_whole(path, (int(sentences.nrows()), encoder.embedding_size))
    if embeddings is None:
        embeddings = _of_what_is_kept(encoder, made_by, path, sentences)
    else:
        _KEPT[encoder] = made_by, path, sentences
    if embeddings is not None:
        return embeddings[rows]
    make_directory(path.parent)
    try:
        # Before the work, which would be lost in a folder that may not be written to.
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UserError(
            f"{path.parent}: cannot be written to ({error.strerror}), expected a place for a cache"
        ) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            embeddings = embed(encoder, tokenizer, sentences, max_seq_length, pad_to_max=pad_to_max)
            np.save(file, embeddings)
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        pathlib.Path(name).unlink(missing_ok=True)
    _KEPT[encoder] = made_by, path, sentences
    return embeddings[rows]


def _read_whole(path, shape):
    """The float32 array of a cache's file; None where there is none, or it is not whole, which is said.

    Raises:
      UserError: the file cannot be read.
    """
    if not path.exists():
        return None
    try:
        embeddings = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        logging.warning("%s is not whole (%s): made again", path, error)
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}), expected a cache's file") from error
    if embeddings.shape != shape or embeddings.dtype != np.float32:
        logging.warning("%s holds %s numbers, expected %s: made again", path, embeddings.shape, shape)
        return None
    logging.info("Embeddings read from %s", path)
    return embeddings


def _of_what_is_kept(encoder, made_by, path, sentences):
    """Embeddings of the sentences out of the file that this encoder's were last kept in, None if one is not in it.

    It is one beside `path`, which has no whole file.
    """
    kept_by, kept_path, kept = _KEPT.get(encoder, (None, None, None))
    if kept_by != made_by or kept_path.parent != path.parent or kept_path == path:
        return None
    row_of = {key: row for row, key in enumerate(row_keys(kept))}
    rows = [row_of.get(key) for key in row_keys(sentences)]
    embeddings = None if None in rows else _read_whole(kept_path, (int(kept.nrows()), encoder.embedding_size))
    return None if embeddings is None else embeddings[rows]
