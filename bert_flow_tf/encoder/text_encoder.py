"""An encoder as a stage of a model: texts to pooled vectors."""

import copy
import dataclasses
import hashlib
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.common.settings import DTYPES
from bert_flow_tf.encoder import stream
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.vectors.batches import check_max_seq_length
from bert_flow_tf.vectors.texts import sentence_list

Self = TypeVar("Self", bound="TextEncoder")


class TextEncoder:
    """Map texts to pooled vectors u, float32 [n, D].

    Prompts are put before the texts, and maps of vectors follow, outside of this class.

    Args:
      source: the encoder's files.
      network: the encoder with its pooling, in float32.
      max_seq_length: the most word pieces of a text, [CLS] and [SEP] included; also an attribute
        that can be set.
      dtype: "float32", or "bfloat16" for matrices and their products.
      trained: True if training has changed the network's weights since `source`.

    Attributes:
      tokenizer: the tokenizer of `source`.
      computing: the network in `dtype`.

    Raises:
      ArgumentError: `dtype` or `max_seq_length` is invalid.
    """

    def __init__(
        self,
        source: EncoderSource,
        network: SentenceEncoder,
        *,
        max_seq_length: int,
        dtype: str = DTYPES[0],
        trained: bool = False,
    ) -> None:
        # np.dtype("float32") equals its name, but cannot be written as JSON.
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise ArgumentError(
                f"dtype: found {dtype!r}, expected {' or '.join(map(repr, DTYPES))}"
            )
        self.source = source
        self.network = network
        self.dtype = dtype
        self.trained = trained
        self.max_seq_length = max_seq_length
        self.tokenizer = source.tokenizer()
        self.computing = network.in_bfloat16() if dtype == "bfloat16" else network

    @classmethod
    def build(
        cls: type[Self],
        source: EncoderSource,
        pooling: str,
        *,
        max_seq_length: int,
        dtype: str = DTYPES[0],
    ) -> Self:
        """Return an encoder with the weights of its files."""
        network = SentenceEncoder(source, pooling, trainable=False)
        return cls(source, network, max_seq_length=max_seq_length, dtype=dtype)

    @property
    def max_seq_length(self) -> int:
        """The most word pieces of a text; longer ones are cut. Settable."""
        return self._max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self._max_seq_length = check_max_seq_length(value, self.network.max_seq_length)

    @property
    def embedding_size(self) -> int:
        """The number of channels D."""
        return self.network.embedding_size

    @property
    def pooling(self) -> str:
        """The pooling's name."""
        return self.network.sentence_embedding_type

    def encode(
        self,
        texts: Iterable[str],
        *,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        dropout_seed: int | None = None,
        label: str = "encode",
    ) -> np.ndarray:
        """Return the pooled vectors, float32 [n, D].

        Args:
          batch_size: texts per step; None for up to 2,048 word pieces per step.
          show_progress_bar: None shows it on a terminal only.
          dropout_seed: seed of a dropout of the encoder, in which each text has its own mask;
            None for no dropout.
          label: name of the progress bar.

        Raises:
          UserError: an element is not a string, or an argument is invalid.
        """
        if dropout_seed is None:
            return self._batcher().encode(
                sentence_list(texts), batch_size=batch_size, show_progress_bar=show_progress_bar
            )
        listed = sentence_list(texts)
        with stream.CutTexts(self.max_seq_length, self.tokenizer.unknown_id) as cuts:
            pieces = stream.tokenize(self.tokenizer, listed, self.max_seq_length, cuts)
        batcher = stream.dropout_batcher(
            self.computing, self.tokenizer, self.max_seq_length, seed=dropout_seed
        )
        return batcher.encode_pieces(
            pieces,
            batch_size,
            occurrences=np.arange(len(listed)),
            show_progress_bar=show_progress_bar,
            label=label,
        )

    def encode_blocks(
        self,
        texts: Iterable[str],
        *,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yield lists of texts and their vectors.

        Memory holds one list at a time. Raises `UserError` as `encode` does.
        """
        return self._batcher().encode_blocks(
            texts, batch_size=batch_size, show_progress_bar=show_progress_bar
        )

    def embed(self, texts: tf.Tensor) -> tf.Tensor:
        """Return the vectors of a string tensor [n], in a graph."""
        return self.embed_tokens(self.tokenizer(texts, self.max_seq_length))

    def embed_tokens(self, tokens: dict[str, tf.Tensor]) -> tf.Tensor:
        """Return the vectors of the tokens from `tokenize`."""
        return self.computing.traced_embed(tokens)

    def tokenize(self, texts: Iterable[str]) -> dict[str, tf.Tensor]:
        """Return a dict of `input_word_ids`, `input_mask` and `input_type_ids`, int32 [n, t]."""
        return self.tokenizer(tf.constant(sentence_list(texts), tf.string), self.max_seq_length)

    def only_unknown(self, texts: Iterable[str]) -> np.ndarray:
        """Return True for each text [n] that holds only unknown word pieces."""
        pieces = stream.tokenize(self.tokenizer, sentence_list(texts), self.max_seq_length)
        return stream.only_unknown(pieces, self.tokenizer.unknown_id).numpy()

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the present weights, the vocabulary and the text rules.

        A BERT has the same in every format, so a trained one has that of its saved folder.
        """
        if not self.trained:
            return self.source.fingerprint
        if self.source.is_bert:
            return self.network.read_pretrained(self.source.record).fingerprint
        digest = hashlib.sha256(self.source.fingerprint.encode())
        for name, variable in sorted(self.network.variables_by_name.items()):
            digest.update(name.encode() + variable.numpy().tobytes())
        return digest.hexdigest()

    @property
    def recipe(self) -> dict[str, Any]:
        """All that the vectors depend on, as values of JSON."""
        return {
            "kind": self.source.kind,
            "fingerprint": self.fingerprint,
            "pooling": self.pooling,
            "max_seq_length": self.max_seq_length,
            "dtype": self.dtype,
        }

    def make_trainable(self) -> None:
        """Let the network's variables be trained.

        Copies of this encoder keep the old variables.

        Raises:
          ArgumentError: the dtype is bfloat16, whose matrices are copies that training does not
            change.
        """
        if self.computing is not self.network:
            raise ArgumentError(
                f"dtype: found {self.dtype} with an encoder to train, expected {DTYPES[0]}; load "
                f"the trained model with dtype={self.dtype!r}"
            )
        self.network = self.computing = self.network.as_trainable()
        self.trained = True

    def with_dtype(self: Self, dtype: str) -> Self:
        """Return an encoder of the same network in another dtype."""
        return type(self)(
            self.source,
            self.network,
            max_seq_length=self.max_seq_length,
            dtype=dtype,
            trained=self.trained,
        )

    def with_length(self: Self, max_seq_length: int) -> Self:
        """Return an encoder that shares network and tokenizer, with another length."""
        copied = copy.copy(self)
        copied.max_seq_length = max_seq_length
        return copied

    def state(self) -> dict[str, Any]:
        """Return what `from_state` needs, with weights as arrays.

        Raises:
          TypeError: the encoder is a SavedModel that is no BERT, which is a folder of files.
        """
        if not self.source.is_bert:
            raise TypeError(
                f"{self.source.bert_hub}: found a SavedModel that is no BERT, which cannot be "
                "pickled"
            )
        bert = self.source.bert
        weights = {name: np.array(value) for name, value in bert.weights.items()}
        trained = self.network.variables_by_name if self.trained else {}
        return {
            "source": dataclasses.replace(
                self.source, pretrained=dataclasses.replace(bert, weights=weights)
            ),
            "pooling": self.pooling,
            "max_seq_length": self.max_seq_length,
            "dtype": self.dtype,
            "arrays": {name: variable.numpy() for name, variable in trained.items()},
        }

    @classmethod
    def from_state(cls: type[Self], state: dict[str, Any]) -> Self:
        """Return the encoder of a `state`."""
        network = SentenceEncoder(state["source"], state["pooling"], trainable=False)
        arrays = state["arrays"]
        for name, value in arrays.items():
            network.variables_by_name[name].assign(value)
        return cls(
            state["source"],
            network,
            max_seq_length=state["max_seq_length"],
            dtype=state["dtype"],
            trained=bool(arrays),
        )

    def __reduce__(self) -> tuple:
        return type(self).from_state, (self.state(),)

    def __copy__(self: Self) -> Self:
        """Return an encoder that shares network and tokenizer."""
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def _batcher(self) -> stream.SentenceBatcher:
        return stream.SentenceBatcher(
            self.computing.traced_embed,
            self.tokenizer,
            [self.embedding_size],
            self.max_seq_length,
        )
