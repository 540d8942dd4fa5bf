"""An encoder as a stage of a model: texts to pooled vectors."""

import concurrent.futures
import copy
import dataclasses
import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context  # The public API cannot return the current device.
from tqdm import tqdm

from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.common.settings import DTYPES
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.pooling import pooling_code
from bert_flow_tf.encoder.source import EncoderSource
from bert_flow_tf.encoder.tokenizer import TOKEN_INPUTS
from bert_flow_tf.vectors.batches import (
    TOKENS_PER_BATCH,
    check_max_seq_length,
    distinct,
    length_batches,
    losses_in_words,
    padded,
)
from bert_flow_tf.vectors.texts import parts, sentence_list
from glow.tracing import check_process

logger = logging.getLogger(__name__)

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
      pad_to_max: True to pad rows to `max_seq_length`, as the original does.

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
        pad_to_max: bool = False,
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
        self.pad_to_max = pad_to_max
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
        check_process()
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
        texts: Sequence[str],
        *,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
        label: str = "encode",
    ) -> np.ndarray:
        """Return the pooled vectors, float32 [n, D].

        Args:
          texts: checked by `vectors.texts`.
          batch_size: texts per step; None for up to 2,048 word pieces per step.
          show_progress_bar: None shows it on a terminal only.
          label: name of the progress bar.

        Raises:
          ArgumentError: `batch_size` is no number of texts.
        """
        found = self.tokenizer.rows(texts, self._max_seq_length)
        rows = found.rows
        if found.is_cut.any() or found.is_unknown.any():
            self._warn_of_losses(len(rows), found.is_cut.sum(), found.is_unknown.sum())
        longest = 2 + max(map(len, rows), default=0)
        if (
            batch_size is None
            and not show_progress_bar
            and 0 < len(rows) * longest <= TOKENS_PER_BATCH
        ):
            return self.embed_rows(rows, batches=[np.arange(len(rows))], show_progress_bar=False)
        unique, index = distinct(rows)
        return self.embed_rows(
            unique, batch_size=batch_size, show_progress_bar=show_progress_bar, label=label
        )[index]

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
        total = len(texts) if isinstance(texts, Sized) else None
        lost = np.zeros(3, int)
        with _progress(total, show_progress_bar, "encode") as progress:
            for part in parts(texts):
                found = self.tokenizer.rows(part, self.max_seq_length)
                lost += len(part), found.is_cut.sum(), found.is_unknown.sum()
                unique, index = distinct(found.rows)
                yield (
                    part,
                    self.embed_rows(unique, batch_size=batch_size, show_progress_bar=False)[index],
                )
                progress.update(len(part))
        self._warn_of_losses(*lost)

    def embed_rows(
        self,
        rows: Sequence[np.ndarray],
        *,
        batch_size: int | None = None,
        batches: Sequence[np.ndarray] | None = None,
        dropout_seed: int | None = None,
        occurrences: np.ndarray | None = None,
        show_progress_bar: bool | None = None,
        label: str = "encode",
    ) -> np.ndarray:
        """Return the vectors, float32 [n, D], of rows of word pieces.

        The other arguments are those of `encode`.

        Args:
          rows: each text's ids, int32 [t], without [CLS] and [SEP], see `Tokenizer.rows`.
          batches: indices of the rows of each batch; by default rows of similar length.
          dropout_seed: seed of a dropout of the encoder, in which each row has its own mask; None
            for no dropout.
          occurrences: with `dropout_seed`, int64 [n], the numbers of the rows in a run, which
            decide their dropout.
        """
        length = self._max_seq_length if self.pad_to_max else None
        if batches is None:
            lengths = np.array([length or len(row) + 2 for row in rows], np.int64)
            batches = list(length_batches(lengths, batch_size))
        tokenizer = self.tokenizer
        # A thread begins without the caller's device; "" would be the first CPU.
        device = context.context().device_name or None

        def compute(batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            ids, mask = padded(
                [rows[i] for i in batch],
                cls=tokenizer.cls_id,
                sep=tokenizer.sep_id,
                pad=tokenizer.pad_id,
                length=length,
                dtype=np.int32,
            )
            with tf.device(device):
                arrays = (ids, mask, np.zeros_like(ids))
                tokens = dict(zip(TOKEN_INPUTS, map(tf.constant, arrays), strict=True))
                if dropout_seed is None or occurrences is None:
                    return batch, self.computing.traced_embed(tokens).numpy()
                tokens["occurrence"] = tf.constant(occurrences[batch], tf.int64)
                seed = tf.constant(dropout_seed, tf.int64)
                return batch, self.computing.traced_dropout(tokens, seed).numpy()

        vectors = np.empty((len(rows), self.network.embedding_size), np.float32)
        with _progress(len(rows), show_progress_bar, label) as progress:
            for batch, found in map_concurrently(compute, batches):
                vectors[batch] = found
                progress.update(len(batch))
        return vectors

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
        return self.tokenizer.rows(sentence_list(texts), self.max_seq_length).is_unknown

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
        """All that the vectors depend on, as values of JSON.

        Raises `ArgumentError` if a pooling of one's own has no module that others can import.
        """
        return {
            "kind": self.source.pretrained.kind,
            "fingerprint": self.fingerprint,
            "pooling": self.pooling,
            "code": pooling_code(self.pooling),
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

    def _warn_of_losses(self, texts: int, cut: int, unknown: int) -> None:
        for words in losses_in_words(texts, cut, unknown, self.max_seq_length):
            logger.warning("%s", words)


def _progress(total: int | None, is_shown: bool | None, label: str) -> tqdm:
    bar = tqdm(
        total=total, desc=label, unit="sentence", disable=None if is_shown is None else not is_shown
    )
    if bar.disable and is_shown is None:
        logger.info("%s: encoding %s sentences", label, "the" if total is None else f"{total:,}")
    return bar


def map_concurrently(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """Yield `function(item)` in order, computed by two threads."""
    # Threads cannot enter a strategy's scope, and XLA corrupts memory if two threads compile at
    # once.
    if (
        len(items) == 1
        or tf.distribute.has_strategy()
        or tf.config.optimizer.get_jit()
        or "xla_auto_jit" in os.environ.get("TF_XLA_FLAGS", "")
    ):
        yield from map(function, items)
        return
    # The first item is computed before the threads start, so that a `tf.function` is traced once.
    yield from map(function, items[:1])
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        yield from executor.map(function, items[1:])
