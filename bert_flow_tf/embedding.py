"""Embeddings of many sentences: each different one once, in batches of like lengths, two batches at a time."""

import collections
import concurrent.futures
import itertools

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context  # the public API sets a device and does not tell it
from tqdm import tqdm

from bert_flow_tf.tokenizer import TOKEN_SPECS

# Of one pass of the encoder: enough rows for its products to run at full rate, few enough for them to stay in a cache.
_TOKENS_PER_BATCH = 2048
# Of a batch's longest sentence.
_LEAST_LENGTH = 0.8


def distinct(pieces):
    """Each different sentence once, in an order that their ids alone give, and for every row the index of its sentence.

    Args:
      pieces: int32 RaggedTensor [n, (t)].

    Returns:
      RaggedTensor [m, (t)] and int64 array [n].
    """
    first, rows = {}, np.empty(pieces.nrows(), np.int64)
    keep = []
    for row, key in enumerate(row_keys(pieces)):
        if key not in first:
            first[key] = len(keep)
            keep.append(row)
        rows[row] = first[key]
    keys = list(first)
    order = np.asarray(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    return tf.gather(pieces, np.asarray(keep, np.int64)[order]), np.argsort(order)[rows]


def length_batches(lengths, batch_size=None, tokens=None):
    """Yields int64 arrays of indices, like lengths together, so that little of a batch is padding; the longest first.

    Args:
      lengths: int array [n], of what stands at each index, padding that it needs in any batch included.
      batch_size: indices a batch; None takes as many as have `tokens` tokens, but at least one, and of those only the
        ones that are not much shorter than the first, if they have a quarter of these tokens.
      tokens: int; None for 2,048.
    """
    tokens = _TOKENS_PER_BATCH if tokens is None else tokens
    order = np.argsort(-lengths, kind="stable")
    descending = lengths[order]
    start = 0
    while start < len(order):
        count = batch_size
        if count is None:
            longest = int(descending[start])
            # Where lengths differ, as in a few sentences, most of a full batch would be padding.
            alike = int(np.searchsorted(-descending, -_LEAST_LENGTH * longest, side="right")) - start
            count = max(1, min(tokens // longest, max(alike, tokens // 4 // longest)))
        yield order[start : start + count]
        start += count


def two_at_a_time(function, items):
    """Yields what `function` gives of each item, in order, while up to two are being computed in threads of their own.

    Where one batch waits for memory, or for the one thread that does its work, the other one multiplies. The first item
    is computed alone, so that a `tf.function` is traced once; the threads work on the caller's device. A strategy's
    scope, which they could not enter, has one item at a time.
    """
    if tf.distribute.has_strategy():
        yield from map(function, items)
        return
    device = context.context().device_name or None  # "" would mean the first CPU

    def on_device(item):
        with tf.device(device):
            return function(item)

    items = iter(items)
    for item in itertools.islice(items, 1):
        yield function(item)
    with concurrent.futures.ThreadPoolExecutor(2) as executor:
        running = collections.deque()
        for item in items:
            running.append(executor.submit(on_device, item))
            if len(running) > 2:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


def embed(encoder, tokenizer, pieces, max_seq_length, *, pad_to_max=False, description="embed"):
    """Embeddings of every row, float32 [n, D], dropout off; a sentence that recurs is computed once.

    Batches are of sentences of like length, so that little is padding.

    Args:
      encoder: `SentenceEncoder`.
      tokenizer: `Tokenizer`.
      pieces: int32 RaggedTensor [n, (t)] of word pieces.
      max_seq_length: longest row with [CLS] and [SEP].
      pad_to_max: pad every row to `max_seq_length`, as the original does.
      description: of the progress bar.
    """
    sentences, rows = distinct(pieces)
    forward = tf.function(
        lambda tokens: encoder(tokens, training=False), input_signature=[TOKEN_SPECS], autograph=False
    )

    lengths = np.minimum(sentences.row_lengths().numpy() + 2, max_seq_length)
    if pad_to_max:
        lengths = np.full_like(lengths, max_seq_length)
    embeddings = np.empty((len(lengths), encoder.embedding_size), np.float32)
    with tqdm(total=len(lengths), desc=description, unit="sentence", disable=None) as progress:

        def compute(batch):
            tokens = tokenizer.pack(tf.gather(sentences, batch), max_seq_length, pad_to_max=pad_to_max)
            embeddings[batch] = forward(tokens).numpy()
            return len(batch)

        for count in two_at_a_time(compute, length_batches(lengths)):
            progress.update(count)
    return embeddings[rows]


def row_keys(pieces):
    """Bytes that tell each row of a RaggedTensor."""
    values, splits = pieces.flat_values.numpy(), pieces.row_splits.numpy()
    return (values[start:stop].tobytes() for start, stop in itertools.pairwise(splits))
