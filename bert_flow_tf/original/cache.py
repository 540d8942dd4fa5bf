"""Cache embeddings on disk by a digest of encoder and sentences."""

import hashlib
import os
import pathlib

import numpy as np
import tensorflow as tf
from absl import logging

from bert_flow_tf.common.atomic import locked, new_file
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import reading
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.pooling import pooling_code
from bert_flow_tf.encoder.stream import distinct, embed
from bert_flow_tf.encoder.tokenizer import Tokenizer
from glow.arrays import write_arrays

_CACHE_VERSION = 5


def cached_embeddings(
    encoder: SentenceEncoder,
    tokenizer: Tokenizer,
    pieces: tf.RaggedTensor,
    max_seq_length: int,
    *,
    cache_dir: str | os.PathLike,
    pad_to_max: bool = False,
) -> np.ndarray:
    """Return `stream.embed` of the sentences, cached on disk.

    The file is `cache_dir/embeddings-KEY.npz`; KEY is a digest of encoder, pooling and its code,
    padding and distinct sentences. A damaged file is replaced. KEY has the fingerprint of
    `encoder.source`, so do not train the encoder.
    """
    padding = f"padded to {max_seq_length}" if pad_to_max else "padded to the longest"
    key = [_CACHE_VERSION, encoder.source.fingerprint, encoder.sentence_embedding_type, padding]
    key += pooling_code(encoder.sentence_embedding_type).items()
    key += ["XLA"] if tf.config.optimizer.get_jit() else []
    digest = hashlib.sha256(repr(key).encode())
    sentences, rows = distinct(pieces)
    digest.update(
        sentences.flat_values.numpy().tobytes() + sentences.row_lengths().numpy().tobytes()
    )
    path = pathlib.Path(cache_dir) / f"embeddings-{digest.hexdigest()[:24]}.npz"
    if (embeddings := _read(path)) is None:
        # The lock fails before the long computation if the folder is not writable.
        with locked(path, wait=True):
            if (embeddings := _read(path)) is None:
                with new_file(path) as file:
                    embeddings = embed(
                        encoder, tokenizer, sentences, max_seq_length, pad_to_max=pad_to_max
                    )
                    write_arrays(file, {"embeddings": embeddings})
    return embeddings[rows]


def _read(path: pathlib.Path) -> np.ndarray | None:
    try:
        with reading(path, "cached embeddings"), np.load(path) as arrays:
            logging.info("Embeddings read from %s", path)
            return arrays["embeddings"]
    except UserError as error:
        if path.exists():
            logging.warning("%s; computing it again", error)
        return None
