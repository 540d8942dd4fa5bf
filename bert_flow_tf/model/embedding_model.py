"""The protocol of an embedding model: what exports, saved models and cards read of `api.BertFlow`."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

# TensorFlow takes seconds to load, and a type needs none of it.
if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

    from bert_flow_tf.encoder.handles import EncoderSource
    from bert_flow_tf.encoder.layer import SentenceEncoder
    from bert_flow_tf.encoder.tokenizer import Tokenizer
    from bert_flow_tf.runs.record import Model
    from glow.flow import Glow


class EmbeddingModel(Protocol):
    """A tokenizer, an encoder and, if there is one, a flow: `api.BertFlow` without its ways to load and to learn."""

    record: "Model"  # Pooling, length, and what encoder and flow learned on.
    source: "EncoderSource"
    encoder: "SentenceEncoder"  # In float32.
    pooled: "SentenceEncoder"  # The encoder that `embed_tokens` calls, in the model's `dtype`.
    encoder_trained: bool  # True if the encoder has other weights than `source`.
    tokenizer: "Tokenizer"
    flow: "Glow | None"
    low_dim: int
    embedding_size: int
    max_seq_length: int  # Word pieces that a sentence is cut to, [CLS] and [SEP] included.
    sentence_embedding_type: str
    similarity_fn_name: str  # Name of the function that `similarity` computes, such as "cosine".
    prompts: dict[str, str]  # Texts by name that `encode` puts before sentences.

    @property
    def fingerprint(self) -> str:
        """Digest of everything that embeddings depend on."""

    def tokenize(self, sentences: "Sequence[str]") -> dict[str, "tf.Tensor"]:
        """Inputs of `embed_tokens`."""

    def encode_parts(self, *arguments: Any) -> "Iterator[tuple[list[str], np.ndarray]]":
        """Lists of sentences with their embeddings; see `api.BertFlow.encode_parts`."""

    def embed_tokens(self, tokens: dict[str, "tf.Tensor"]) -> "tf.Tensor":
        """Embeddings [n, embedding_size] of a dict of int32 [n, t], as `Tokenizer.pack` gives it."""
