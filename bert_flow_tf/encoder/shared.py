"""A frozen encoder that a process loads once for the stages that it runs one after the other."""

import contextlib
import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bert_flow_tf.encoder.handles import EncoderSource

if TYPE_CHECKING:
    from bert_flow_tf.encoder.layer import SentenceEncoder

# The last encoder and its strategy, by pooling; None outside `sharing_encoders`. One encoder, since they are large.
_last: dict[tuple, dict[str, "SentenceEncoder"]] | None = None


@contextlib.contextmanager
def sharing_encoders() -> Iterator[None]:
    """A context in which `frozen_encoder` does not load again what it loaded last."""
    global _last
    _last = {}
    try:
        yield
    finally:
        _last = None


def frozen_encoder(source: EncoderSource, sentence_embedding_type: str) -> "SentenceEncoder":
    """The encoder of `source`, whose variables nobody may change if it is shared; raises as `SentenceEncoder`."""
    # TensorFlow takes seconds to load, and a process that only announces sharing does not need it.
    import tensorflow as tf

    from bert_flow_tf.encoder.layer import SentenceEncoder

    # Variables belong to the strategy that they were made in.
    made_of = source, tf.distribute.get_strategy()
    if _last is None:
        return SentenceEncoder(source, sentence_embedding_type, trainable=False)
    if made_of not in _last:
        # Two large encoders may not fit into memory.
        _last.clear()
        _last[made_of] = {sentence_embedding_type: SentenceEncoder(source, sentence_embedding_type, trainable=False)}
    encoders = _last[made_of]
    if sentence_embedding_type not in encoders:
        encoders[sentence_embedding_type] = next(iter(encoders.values())).with_pooling(sentence_embedding_type)
    # `cached_embeddings` tells one stage's encoder from the next one's by the copy.
    return copy.copy(encoders[sentence_embedding_type])
