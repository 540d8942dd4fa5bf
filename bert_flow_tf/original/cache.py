"""Cache embeddings on disk by a digest of encoder and sentences."""

import hashlib
import logging
import pathlib
from collections.abc import Sequence

import msgspec
import numpy as np
import tensorflow as tf

from bert_flow_tf.common.atomic import locked, new_file
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import AnyPath, reading
from bert_flow_tf.encoder.text_encoder import TextEncoder
from bert_flow_tf.vectors.batches import distinct
from glow.arrays import write_arrays

logger = logging.getLogger(__name__)

_CACHE_VERSION = 6


def cached_embeddings(
    encoder: TextEncoder, rows: Sequence[np.ndarray], cache_dir: AnyPath
) -> np.ndarray:
    """Return `TextEncoder.embed_rows` of word pieces, cached on disk.

    The file is `cache_dir/embeddings-KEY.npz`; KEY is a digest of the encoder's recipe, padding and
    distinct rows. A damaged file is replaced. The recipe has the fingerprint of `encoder.source`,
    so do not train the encoder.
    """
    unique, index = distinct(rows)
    key = [_CACHE_VERSION, encoder.recipe, encoder.pad_to_max, bool(tf.config.optimizer.get_jit())]
    digest = hashlib.sha256(msgspec.json.encode(key))
    for row in unique:
        digest.update(msgspec.json.encode(row.tolist()))
    path = pathlib.Path(cache_dir) / f"embeddings-{digest.hexdigest()[:24]}.npz"
    if (embeddings := _read(path)) is None:
        # The lock fails before the long computation if the folder is not writable.
        with locked(path, wait=True):
            if (embeddings := _read(path)) is None:
                with new_file(path) as file:
                    embeddings = encoder.embed_rows(unique)
                    write_arrays(file, {"embeddings": embeddings})
    return embeddings[index]


def _read(path: pathlib.Path) -> np.ndarray | None:
    try:
        with reading(path, "cached embeddings"), np.load(path) as arrays:
            logger.info("Embeddings read from %s", path)
            return arrays["embeddings"]
    except UserError as error:
        if path.exists():
            logger.warning("%s; computing it again", error)
        return None
