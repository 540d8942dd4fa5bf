"""Encode each distinct sentence once, in batches of similar length."""

import concurrent.futures
import contextlib
import functools
import itertools
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context  # The public API cannot return the current device.
from tqdm import tqdm

from bert_flow_tf.encoder.bert import Inputs
from bert_flow_tf.encoder.layer import SentenceEncoder
from bert_flow_tf.encoder.tokenizer import TOKEN_SPECS, Tokenizer
from bert_flow_tf.vectors.batches import check_batch_size, length_batches, losses_in_words
from bert_flow_tf.vectors.texts import parts, sentence_list
from glow.tracing import traced_once

logger = logging.getLogger(__name__)

# Padded texts of up to 8,192 characters in all are one batch, which needs neither sorting nor
# threads: only attention computes with padding.
_ONE_BATCH = 8192


def count_cut(pieces: tf.RaggedTensor, max_seq_length: int) -> tf.Tensor:
    """Return the number [] of rows that `pack` cuts."""
    return tf.math.count_nonzero(pieces.row_lengths() > max_seq_length - 2)


def only_unknown(pieces: tf.RaggedTensor, unknown_id: int) -> tf.Tensor:
    """Return True for each row [n] of nothing but unknown pieces."""
    is_unknown = tf.cast(tf.equal(pieces.values, unknown_id), tf.int64)
    unknown = tf.math.unsorted_segment_sum(is_unknown, pieces.value_rowids(), pieces.nrows())
    lengths = pieces.row_lengths()
    return (lengths > 0) & (unknown == lengths)


class CutTexts(contextlib.AbstractContextManager["CutTexts"]):
    """Count the texts that lose words; warn about them at the end.

    Long texts are cut, and of texts in another script only unknown pieces are left.
    """

    def __init__(self, max_seq_length: int, unknown_id: int) -> None:
        self.limit = max_seq_length
        self.texts = 0
        self.cut = 0
        self.unknown = 0
        self._unknown_id = unknown_id

    def count(self, pieces: tf.RaggedTensor) -> None:
        self.texts += int(pieces.nrows())
        self.cut += int(count_cut(pieces, self.limit))
        self.unknown += int(np.count_nonzero(only_unknown(pieces, self._unknown_id).numpy()))

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            return
        for words in losses_in_words(self.texts, self.cut, self.unknown, self.limit):
            logger.warning("%s", words)


def tokenize(
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    max_seq_length: int,
    cuts: CutTexts | None = None,
) -> tf.RaggedTensor:
    """Return word-piece ids, cut to `max_seq_length` - 2: int32 [n, (t)]."""
    # Tokenizing few sentences needs no bar. None shows it on a terminal only.
    hide_bar = None if len(sentences) > 50_000 else True
    starts = tqdm(range(0, max(len(sentences), 1), 4096), desc="tokenize", disable=hide_bar)
    chunks = (
        tf.constant([one.encode() for one in sentences[start : start + 4096]], tf.string)
        for start in starts
    )
    pieces = tf.concat([tokenizer.tokenize(chunk) for chunk in chunks], axis=0)
    if cuts is not None:
        cuts.count(pieces)
    return pieces[:, : max_seq_length - 2]


def distinct(pieces: tf.RaggedTensor) -> tuple[tf.RaggedTensor, np.ndarray]:
    """Return the distinct rows, sorted, and each row's index in them."""
    values = pieces.flat_values.numpy()
    splits = pieces.row_splits.numpy()
    keys = np.array(
        [values[start:stop].tobytes() for start, stop in itertools.pairwise(splits)], object
    )
    _, first_rows, rows = np.unique(keys, return_index=True, return_inverse=True)
    return tf.gather(pieces, first_rows), rows


def map_concurrently(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """Yield `function(item)` in order, computed by two threads."""
    # Threads cannot enter a strategy's scope, and XLA corrupts memory if two threads compile at
    # once.
    has_xla = tf.config.optimizer.get_jit() or "xla_auto_jit" in os.environ.get("TF_XLA_FLAGS", "")
    if has_xla or tf.distribute.has_strategy():
        yield from map(function, items)
        return
    device = context.context().device_name or None  # "" would be the first CPU

    def on_device(item: Any) -> Any:
        with tf.device(device):
            return function(item)

    items = iter(items)
    # The first item is computed before the threads start, so that a `tf.function` is traced once.
    yield from map(function, itertools.islice(items, 1))
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        yield from executor.map(on_device, items)


class SentenceBatcher:
    """Encode sentences in batches of similar length; return them in their order.

    Args:
      encode: traced function from `Tokenizer.pack`'s dict of int32 [k, t] to float32 [k, *shape].
        The dict also has `occurrence`, int64 [k], if `encode_pieces` gets `occurrences`.
      shape: shape of the output of one sentence.
      max_seq_length: longest input in word pieces, [CLS] and [SEP] included.
      pad_to_max: True to pad `encode_pieces` to `max_seq_length`, as the original does.
    """

    def __init__(
        self,
        encode: Callable[[Inputs], tf.Tensor],
        tokenizer: Tokenizer,
        shape: Sequence[int],
        max_seq_length: int,
        pad_to_max: bool = False,
    ) -> None:
        self._encode = encode
        self._tokenizer = tokenizer
        self._shape = tuple(shape)
        self._max_seq_length = max_seq_length
        self._pad_to_max = pad_to_max

    def encode(
        self,
        sentences: Iterable[str],
        *,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
    ) -> np.ndarray:
        """Return float32 [n, *shape] of all sentences."""
        with CutTexts(self._max_seq_length, self._tokenizer.unknown_id) as cuts:
            if isinstance(sentences, list) and batch_size is None and not show_progress_bar:
                texts = sentence_list(sentences)
                count = len(sentences)
                # [CLS] and [SEP] count as words of four characters.
                if texts and count * (max(map(len, texts)) + 8) <= _ONE_BATCH:
                    pieces = tokenize(self._tokenizer, texts, self._max_seq_length, cuts)
                    tokens = self._tokenizer.pack(pieces, self._max_seq_length)
                    return self._encode(tokens).numpy()
            pieces = [
                tokenize(self._tokenizer, part, self._max_seq_length, cuts)
                for part in parts(sentences)
            ]
        if not pieces:
            return np.empty((0, *self._shape), np.float32)
        unique, rows = distinct(tf.concat(pieces, axis=0))
        return self.encode_pieces(unique, batch_size, show_progress_bar=show_progress_bar)[rows]

    def encode_blocks(
        self,
        sentences: Iterable[str],
        *,
        batch_size: int | None = None,
        show_progress_bar: bool | None = None,
    ) -> Iterator[tuple[list[str], np.ndarray]]:
        """Yield lists of up to `sentence_files.BLOCK_ROWS` sentences and float32 [k, *shape]."""
        total = len(sentences) if isinstance(sentences, Sized) else None
        with (
            CutTexts(self._max_seq_length, self._tokenizer.unknown_id) as cuts,
            _progress(total, show_progress_bar) as progress,
        ):
            for part in parts(sentences):
                unique, rows = distinct(tokenize(self._tokenizer, part, self._max_seq_length, cuts))
                yield part, self.encode_pieces(unique, batch_size)[rows]
                progress.update(len(part))

    def encode_pieces(
        self,
        pieces: tf.RaggedTensor,
        batch_size: int | None = None,
        occurrences: np.ndarray | None = None,
        show_progress_bar: bool | None = False,
        label: str = "encode",
    ) -> np.ndarray:
        """Return float32 [n, *shape] of word pieces, int32 [n, (t)].

        `label` names the progress bar.
        """
        check_batch_size(batch_size)

        def compute(batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            tokens = self._tokenizer.pack(
                tf.gather(pieces, batch), self._max_seq_length, pad_to_max=self._pad_to_max
            )
            if occurrences is not None:
                tokens["occurrence"] = tf.constant(occurrences[batch], tf.int64)
            return batch, self._encode(tokens).numpy()

        lengths = pieces.row_lengths().numpy() + 2
        lengths = np.clip(
            lengths, self._max_seq_length if self._pad_to_max else 0, self._max_seq_length
        )
        values = np.empty((len(lengths), *self._shape), np.float32)
        with _progress(len(lengths), show_progress_bar, label) as progress:
            for batch, computed in map_concurrently(compute, length_batches(lengths, batch_size)):
                values[batch] = computed
                progress.update(len(batch))
        return values


def _progress(total: int | None, is_shown: bool | None, label: str = "encode") -> tqdm:
    bar = tqdm(
        total=total, desc=label, unit="sentence", disable=None if is_shown is None else not is_shown
    )
    if bar.disable and is_shown is None:
        logger.info("%s: encoding %s sentences", label, "the" if total is None else f"{total:,}")
    return bar


def embed(
    encoder: SentenceEncoder,
    tokenizer: Tokenizer,
    pieces: tf.RaggedTensor,
    max_seq_length: int,
    pad_to_max: bool = False,
    label: str = "encode",
) -> np.ndarray:
    """Return embeddings, float32 [n, D], of word pieces, int32 [n, (t)]."""
    unique, rows = distinct(pieces)
    batcher = SentenceBatcher(
        encoder.traced_embed, tokenizer, [encoder.embedding_size], max_seq_length, pad_to_max
    )
    return batcher.encode_pieces(unique, show_progress_bar=None, label=label)[rows]


def dropout_batcher(
    encoder: SentenceEncoder,
    tokenizer: Tokenizer,
    max_seq_length: int,
    *,
    seed: int,
    pad_to_max: bool = False,
) -> SentenceBatcher:
    """Return a batcher with dropout; `encode_pieces` needs `occurrences`."""
    specs = TOKEN_SPECS | {"occurrence": tf.TensorSpec([None], tf.int64)}
    encode = functools.partial(encoder.__call__, training=True, dropout_seed=seed)
    shape = [encoder.embedding_size]
    return SentenceBatcher(traced_once(encode, specs), tokenizer, shape, max_seq_length, pad_to_max)
