"""A frozen encoder that a process loads once, for the commands that it runs one after the other."""

import contextlib
import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bert_flow_tf.encoder.handles import EncoderSource

if TYPE_CHECKING:
    from bert_flow_tf.encoder.layer import SentenceEncoder

_is_shared = False
# What was loaded last, and by the pooling's name its encoders: one encoder, since they are large.
_last: tuple[tuple, dict[str, "SentenceEncoder"]] | None = None


@contextlib.contextmanager
def sharing_encoders() -> Iterator[None]:
    """A context in which `frozen_encoder` does not load again what it loaded last."""
    global _is_shared, _last
    _is_shared = True
    try:
        yield
    finally:
        _is_shared, _last = False, None


def frozen_encoder(source: EncoderSource, sentence_embedding_type: str) -> "SentenceEncoder":
    """The encoder of `source`; where it is shared, nobody may change its variables. Raises as `SentenceEncoder`."""
    global _last
    # TensorFlow takes seconds to load: not for a process that only says that it will share.
    import tensorflow as tf

    from bert_flow_tf.encoder.layer import SentenceEncoder

    # Variables belong to the strategy that they were made in.
    made_of = source, tf.distribute.get_strategy()
    if not _is_shared or _last is None or _last[0] != made_of:
        # Before another one is loaded.
        _last = None
        encoder = SentenceEncoder(source, sentence_embedding_type, trainable=False)
        if not _is_shared:
            return encoder
        _last = made_of, {sentence_embedding_type: encoder}
    encoders = _last[1]
    if sentence_embedding_type not in encoders:
        encoders[sentence_embedding_type] = next(iter(encoders.values())).with_pooling(sentence_embedding_type)
    # A copy, by which `cached_embeddings` tells one command's encoder from the next one's.
    return copy.copy(encoders[sentence_embedding_type])
