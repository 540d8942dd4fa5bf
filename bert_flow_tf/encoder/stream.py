"""Encodes an iterable of sentences: batched by length, repeats computed once, results in the sentences' order."""

import collections
import concurrent.futures
import hashlib
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context  # the public API sets a device and does not say which is set
from tqdm import tqdm

from bert_flow_tf.encoder.batches import length_batches
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.tokenizer import TOKEN_SPECS, Tokenizer
from bert_flow_tf.errors import ArgumentError
from bert_flow_tf.files.sentence_files import parts

# Sentences that are tokenized at once.
_TOKENIZE_CHUNK = 4096
_XLA = threading.Lock()


def tokenize(
    tokenizer: Tokenizer, sentences: Sequence[str], max_seq_length: int, show_progress: bool = False
) -> tf.RaggedTensor:
    """Word-piece ids of each sentence, cut to `max_seq_length` - 2: int32 RaggedTensor [n, (t)]."""
    starts = range(0, max(len(sentences), 1), _TOKENIZE_CHUNK)
    chunks = [
        tokenizer.tokenize(tf.constant(sentences[start : start + _TOKENIZE_CHUNK], tf.string))[:, : max_seq_length - 2]
        for start in tqdm(starts, desc="tokenize", disable=None if show_progress else True)
    ]
    return tf.concat(chunks, axis=0)


def row_keys(pieces: tf.RaggedTensor) -> list[bytes]:
    """Bytes that identify each row of a RaggedTensor."""
    values, splits = pieces.flat_values.numpy(), pieces.row_splits.numpy()
    return [values[start:stop].tobytes() for start, stop in itertools.pairwise(splits)]


def distinct(pieces: tf.RaggedTensor) -> tuple[tf.RaggedTensor, np.ndarray]:
    """Each different row of ragged int32 [n, (t)] once, ordered by its ids, and for each row where it is: int64 [n]."""
    keys = np.array(row_keys(pieces), object)
    _, first_rows, rows = np.unique(keys, return_index=True, return_inverse=True)
    return tf.gather(pieces, first_rows), rows


def map_concurrently(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """Yields `function(item)` for each item, in order, while up to two are being computed, each in its own thread.

    While one batch waits for memory, or for the one thread that does its work, the other one computes. The first item
    is computed alone, so that a `tf.function` is traced once; the threads work on the caller's device. In a strategy's
    scope, which threads cannot enter, items are computed one at a time; with XLA, which breaks the process's memory
    where two threads have it compile at once, one at a time in the whole process.
    """
    if tf.config.optimizer.get_jit() or "xla_auto_jit" in os.environ.get("TF_XLA_FLAGS", ""):
        for item in items:
            with _XLA:
                value = function(item)
            yield value
        return
    if tf.distribute.has_strategy():
        yield from map(function, items)
        return
    device = context.context().device_name or None  # "" would mean the first CPU

    def on_device(item: Any) -> Any:
        with tf.device(device):
            return function(item)

    items = iter(items)
    for item in itertools.islice(items, 1):
        yield function(item)
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        running: collections.deque = collections.deque()
        for item in items:
            running.append(executor.submit(on_device, item))
            if len(running) > 2:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


class SentenceBatcher:
    """What functions of an encoder give for sentences, batch by batch.

    Sentences of like length share a batch, and one that recurs is computed once.

    Args:
      encode: from the dict of int32 [k, t] that `Tokenizer.pack` gives to float32 [k, *shape]: an encoder's `embed`,
        say; it is traced once, if it is no `tf.function` yet.
      tokenizer: `Tokenizer`.
      shape: of a sentence's value.
      max_seq_length: word pieces that a sentence is cut to, [CLS] and [SEP] included.
      pad_to_max: pad every sentence to `max_seq_length`, as the original does.
      takes_occurrences: whether `encode` takes the sentences' numbers too, `occurrence`, int64 [k], as
        `SentenceEncoder` does for dropout; `encode_pieces` must then be given them.
    """

    def __init__(
        self,
        encode: Callable[[dict[str, tf.Tensor]], tf.Tensor],
        tokenizer: Tokenizer,
        *,
        shape: Sequence[int],
        max_seq_length: int,
        pad_to_max: bool = False,
        takes_occurrences: bool = False,
    ) -> None:
        specs = TOKEN_SPECS | ({"occurrence": tf.TensorSpec([None], tf.int64)} if takes_occurrences else {})
        is_traced = isinstance(encode, tf.types.experimental.PolymorphicFunction)
        self._function = encode if is_traced else tf.function(encode, input_signature=[specs], autograph=False)
        self._tokenizer = tokenizer
        self._shape = tuple(shape)
        self._max_seq_length = max_seq_length
        self._pad_to_max = pad_to_max

    def encode(
        self, sentences: Iterable[str], *, batch_size: int | None = None, show_progress_bar: bool | None = None
    ) -> np.ndarray:
        """float32 [n, *shape] of all sentences of the iterable; one that recurs anywhere is computed once."""
        values = np.empty((0, *self._shape), np.float32)
        row_of: dict[bytes, int] = {}
        for part, pieces, rows in self._parts(sentences, show_progress_bar):
            digests = [hashlib.blake2b(key, digest_size=16).digest() for key in row_keys(pieces)]
            known = np.array([digest in row_of for digest in digests], bool)
            part_values = np.empty((len(digests), *self._shape), np.float32)
            part_values[known] = values[[row_of[digest] for digest in itertools.compress(digests, known)]]
            new = np.flatnonzero(~known)
            part_values[new] = self.encode_pieces(tf.gather(pieces, new), batch_size)
            first_rows = np.unique(rows, return_index=True)[1]
            row_of.update((digests[i], len(values) + int(first_rows[i])) for i in new)
            before = len(values)
            # In place: a copy would hold everything twice.
            values.resize((before + len(part), *self._shape), refcheck=False)
            values[before:] = part_values[rows]
        return values

    def encode_parts(
        self, sentences: Iterable[str], *, batch_size: int | None = None, show_progress_bar: bool | None = None
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yields pairs of a list of up to `PART` sentences and their float32 [k, *shape], and keeps nothing."""
        for part, pieces, rows in self._parts(sentences, show_progress_bar):
            yield part, self.encode_pieces(pieces, batch_size)[rows]

    def _parts(
        self, sentences: Iterable[str], show_progress_bar: bool | None
    ) -> Iterator[tuple[list[str], tf.RaggedTensor, np.ndarray]]:
        """Yields each part of the sentences with its `distinct` word pieces; shows when it has been dealt with."""
        total = len(sentences) if isinstance(sentences, Sized) else None
        hidden = None if show_progress_bar is None else not show_progress_bar
        with tqdm(total=total, desc="encode", unit="sentence", disable=hidden) as progress:
            for part in parts(sentences):
                yield part, *distinct(tokenize(self._tokenizer, part, self._max_seq_length))
                progress.update(len(part))

    def _lengths(self, pieces: tf.RaggedTensor) -> np.ndarray:
        """int64 [n]: number of ids of each sentence, [CLS] and [SEP] included."""
        return np.minimum(pieces.row_lengths().numpy() + 2, self._max_seq_length)

    def encode_pieces(
        self,
        pieces: tf.RaggedTensor,
        batch_size: int | None = None,
        occurrences: np.ndarray | None = None,
        on_batch: Callable[[int], object] = lambda done: None,
    ) -> np.ndarray:
        """float32 [n, *shape] of sentences that are word pieces already, int32 RaggedTensor [n, (t)].

        `on_batch` is called with the number of sentences of each batch that is done; what it raises ends the work.
        """
        values = np.empty((pieces.nrows(), *self._shape), np.float32)
        for batch, computed in self._batches(pieces, batch_size, occurrences):
            values[batch] = computed
            on_batch(len(batch))
        return values

    def _batches(
        self, pieces: tf.RaggedTensor, batch_size: int | None, occurrences: np.ndarray | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yields (indices [k], the function's values of these [k, ...]) for every batch."""
        is_count = isinstance(batch_size, int | np.integer) and not isinstance(batch_size, bool) and batch_size >= 1
        if not (batch_size is None or is_count):
            raise ArgumentError(f"batch_size: found {batch_size!r}, expected a whole number of 1 or more")

        def compute(batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            sentences = tf.gather(pieces, batch)
            tokens = self._tokenizer.pack(sentences, self._max_seq_length, pad_to_max=self._pad_to_max)
            if occurrences is not None:
                tokens["occurrence"] = tf.constant(occurrences[batch], tf.int64)
            return batch, self._function(tokens).numpy()

        lengths = self._lengths(pieces)
        if self._pad_to_max:
            lengths = np.full_like(lengths, self._max_seq_length)
        yield from map_concurrently(compute, length_batches(lengths, batch_size))


def embed(
    encoder: SentenceEncoder,
    tokenizer: Tokenizer,
    pieces: tf.RaggedTensor,
    max_seq_length: int,
    *,
    pad_to_max: bool = False,
) -> np.ndarray:
    """Embeddings, float32 [n, D], dropout off, of sentences that are word pieces, int32 RaggedTensor [n, (t)].

    A sentence that recurs is computed once; see `SentenceBatcher` for `max_seq_length` and `pad_to_max`.
    """
    shape = (encoder.embedding_size,)
    batcher = SentenceBatcher(
        encoder.traced_embed, tokenizer, shape=shape, max_seq_length=max_seq_length, pad_to_max=pad_to_max
    )
    sentences, rows = distinct(pieces)
    with tqdm(total=int(sentences.nrows()), desc="embed", unit="sentence", disable=None) as progress:
        return batcher.encode_pieces(sentences, on_batch=progress.update)[rows]
