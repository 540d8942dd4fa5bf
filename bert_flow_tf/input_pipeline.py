"""Sentence pairs as token ids or cached embeddings, in the original's order, as tf.data batches."""

import collections
import concurrent.futures
import dataclasses
import hashlib
import io
import itertools
import os
import pathlib
import tempfile
import weakref
import zipfile

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.python.eager import context  # the public API sets a device and does not tell it
from tqdm import tqdm

from bert_flow_tf.atomic import make_directory
from bert_flow_tf.errors import UserError

SHUFFLE_BUFFER = 1000
MASKED_LABEL = -10.0
_TOKENIZE_CHUNK = 4096
# Of one pass of the encoder: enough rows for its products to run at full rate, few enough for them to stay in a cache.
_TOKENS_PER_BATCH = 2048
_CACHE_VERSION = 3
# SentenceEncoder -> what made its embeddings that were last read or written, their file, and their sentences.
_KEPT = weakref.WeakKeyDictionary()


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Tokenized sentence pairs.

    Attributes:
      pieces: int32 RaggedTensor [2n, (t)] of word-piece ids without [CLS] and [SEP]; rows 2i and 2i+1 are pair i.
      labels: float32 scaled to [0, 1] or int32 class ids, [n].
    """

    pieces: tf.RaggedTensor
    labels: np.ndarray

    def __len__(self):
        return len(self.labels)


def scaled_labels(examples, task):
    """Labels as the model takes them: float32 in [0, 1] for regression, int32 class ids otherwise."""
    if not task.is_regression:
        return np.asarray(examples.labels, np.int32)
    span = task.label_max - task.label_min
    return ((np.asarray(examples.labels, np.float64) - task.label_min) / span).astype(np.float32)


def mask_labels(labels, num_examples, task, seed):
    """Labels with all but `num_examples` randomly chosen ones masked: -10 before scaling, as in the original."""
    masked = np.random.default_rng([seed, 1]).permutation(len(labels))[num_examples:]
    labels = labels.copy()
    labels[masked] = (MASKED_LABEL - task.label_min) / (task.label_max - task.label_min) if task.is_regression else -10
    return labels


def tokenize(tokenizer, sentences, max_seq_length, show_progress=False):
    """Word-piece ids of each sentence, cut to `max_seq_length` - 2: int32 RaggedTensor [n, (t)]."""
    values, lengths = [], []
    for start in tqdm(
        range(0, len(sentences), _TOKENIZE_CHUNK), desc="tokenize", disable=None if show_progress else True
    ):
        pieces = tokenizer.tokenize(tf.constant(sentences[start : start + _TOKENIZE_CHUNK]))
        pieces = pieces[:, : max_seq_length - 2]
        values.append(pieces.flat_values.numpy())
        lengths.append(pieces.row_lengths().numpy())
    if not values:
        return tf.RaggedTensor.from_row_lengths(tf.zeros([0], tf.int32), tf.zeros([0], tf.int64))
    return tf.RaggedTensor.from_row_lengths(np.concatenate(values), np.concatenate(lengths))


def tokenize_pairs(tokenizer, examples, labels, max_seq_length):
    """`Pairs` of the examples, in their order."""
    sentences = [s for pair in zip(examples.sentences_a, examples.sentences_b, strict=True) for s in pair]
    return Pairs(tokenize(tokenizer, sentences, max_seq_length, show_progress=len(sentences) > 50_000), labels)


def permuted(pairs, seed):
    """The pairs in a random order that the seed gives: the original shuffles once before it writes its records."""
    order = np.random.default_rng([seed, 0]).permutation(len(pairs))
    rows = np.stack([2 * order, 2 * order + 1], axis=-1).reshape(-1)
    return Pairs(tf.gather(pairs.pieces, rows), pairs.labels[order])


def duplicated(pairs, dupe_factor, mask_id, seed):
    """Each pair `dupe_factor` times in a row, the copies with one random token of each sentence replaced by [MASK].

    A sentence without tokens stays as it is (the original fails on one).
    """
    if dupe_factor == 1:
        return pairs
    generator = np.random.default_rng([seed, 2])
    rows = []
    sentences = pairs.pieces.to_list()
    for a, b in zip(sentences[::2], sentences[1::2], strict=True):
        for copy in range(dupe_factor):
            for pieces in (a, b):
                masked = list(pieces)
                if copy and masked:
                    masked[generator.integers(len(masked))] = mask_id
                rows.append(masked)
    return Pairs(tf.ragged.constant(rows, tf.int32, ragged_rank=1), np.repeat(pairs.labels, dupe_factor))


def fingerprint(pairs):
    """SHA-256, in hex, of the pairs' ids and labels."""
    digest = hashlib.sha256()
    for array in (pairs.pieces.flat_values.numpy(), pairs.pieces.row_lengths().numpy(), pairs.labels):
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()


def training_batches(features, labels, *, batch_size, seed, skip_steps=0):
    """Endless tf.data batches of the global batch size, in the original's order.

    A buffer of 1,000 shuffles anew every epoch, epochs follow each other without a break, and the order depends on the
    seed alone, so that `skip_steps` goes on exactly where an interrupted run stopped.

    Args:
      features: function of a [batch] int64 tensor of pair indices that gives the model's inputs.
      labels: [n] array.
      batch_size: pairs a step, over all replicas.
      seed: int.
      skip_steps: steps done already.
    """
    labels = tf.constant(labels)
    indices = tf.data.Dataset.range(len(labels)).shuffle(SHUFFLE_BUFFER, seed=seed, reshuffle_each_iteration=True)
    indices = indices.repeat().batch(batch_size, drop_remainder=True).skip(skip_steps)
    batches = indices.map(lambda i: (features(i), tf.gather(labels, i)), num_parallel_calls=1, deterministic=True)
    return batches.prefetch(2)


def token_features(pairs, tokenizer, max_seq_length, pad_to_max):
    """Function of pair indices that gives token tensors [batch, 2, t], padded to the longest or to `max_seq_length`."""

    def features(indices):
        rows = tf.reshape(tf.stack([2 * indices, 2 * indices + 1], axis=-1), [-1])
        tokens = tokenizer.pack(tf.gather(pairs.pieces, rows), max_seq_length, pad_to_max=pad_to_max)
        return {name: tf.reshape(value, [-1, 2, tf.shape(value)[1]]) for name, value in tokens.items()}

    return features


def embedding_features(embeddings):
    """Function of pair indices that gives cached embeddings [batch, 2, D]; `embeddings` is [2n, D]."""
    pairs = tf.reshape(tf.constant(embeddings), [-1, 2, embeddings.shape[-1]])
    return lambda indices: {"embedding": tf.gather(pairs, indices)}


def distinct(pieces):
    """Each different sentence once, in an order that their ids alone give, and for every row the index of its sentence.

    Args:
      pieces: int32 RaggedTensor [n, (t)].

    Returns:
      RaggedTensor [m, (t)] and int64 array [n].
    """
    first, rows = {}, np.empty(pieces.nrows(), np.int64)
    keep = []
    for row, key in enumerate(_keys(pieces)):
        if key not in first:
            first[key] = len(keep)
            keep.append(row)
        rows[row] = first[key]
    keys = list(first)
    order = np.asarray(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    return tf.gather(pieces, np.asarray(keep, np.int64)[order]), np.argsort(order)[rows]


def length_batches(lengths, batch_size=None, tokens=_TOKENS_PER_BATCH):
    """Yields int64 arrays of indices, like lengths together, so that little of a batch is padding; the longest first.

    Args:
      lengths: int array [n], of what stands at each index, padding that it needs in any batch included.
      batch_size: indices a batch; None takes as many as have `tokens` tokens, but at least one.
      tokens: int.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        batch = order[start : start + (batch_size or max(1, tokens // int(lengths[order[start]])))]
        yield batch
        start += len(batch)


def two_at_a_time(function, items):
    """Yields what `function` gives of each item, in order, while up to two are being computed in threads of their own.

    Where one batch waits for memory, or for the one thread that does its work, the other one multiplies. The first item
    is computed alone, so that a `tf.function` is traced once; the threads work on the caller's device. A strategy's
    scope, which they could not enter, has one item at a time.
    """
    if tf.distribute.has_strategy():
        yield from map(function, items)
        return
    device = context.context().device_name

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
    specs = dict.fromkeys(("input_word_ids", "input_mask", "input_type_ids"), tf.TensorSpec([None, None], tf.int32))
    forward = tf.function(lambda tokens: encoder(tokens, training=False), input_signature=[specs], autograph=False)

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


def cached_embeddings(encoder, tokenizer, pieces, max_seq_length, *, cache_dir, pad_to_max=False):
    """As `embed`, kept on disk under what made it, each different sentence once and in an order of their own.

    The file `embeddings-KEY.npy` in `cache_dir` is named by a digest of the encoder, its pooling, the padding and
    the ids of all different sentences, so another encoder, vocabulary, pooling, length or text never meets it, and the
    order of the data, which the seed draws, makes no difference. A file that is not whole is made again. A part of the
    sentences that the same encoder object embedded last, as the test set is of all splits, is read from their file.

    Args:
      encoder: `SentenceEncoder`, with the weights of its source.
      cache_dir: folder, made if it is not there.

    Raises:
      UserError: the folder cannot be made or written to, or a file in it cannot be read.
    """
    padding = f"padded to {max_seq_length}" if pad_to_max else "padded to the longest"
    made_by = [_CACHE_VERSION, encoder.source.fingerprint, encoder.sentence_embedding_type, padding]
    if tf.config.optimizer.get_jit():
        made_by.append("XLA")
    digest = hashlib.sha256(repr(made_by).encode())
    sentences, rows = distinct(pieces)
    for array in (sentences.flat_values.numpy(), sentences.row_lengths().numpy()):
        digest.update(np.ascontiguousarray(array))
    path = pathlib.Path(cache_dir) / f"embeddings-{digest.hexdigest()[:24]}.npy"
    embeddings = _read_whole(path, (int(sentences.nrows()), encoder.embedding_size))
    if embeddings is None:
        embeddings = _of_what_is_kept(encoder, made_by, path, sentences)
    else:
        _KEPT[encoder] = made_by, path, sentences
    if embeddings is not None:
        return embeddings[rows]
    make_directory(path.parent)
    try:
        # Before the work, which would be lost in a folder that may not be written to.
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UserError(
            f"{path.parent}: cannot be written to ({error.strerror}), expected a place for a cache"
        ) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            embeddings = embed(encoder, tokenizer, sentences, max_seq_length, pad_to_max=pad_to_max)
            np.save(file, embeddings)
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        pathlib.Path(name).unlink(missing_ok=True)
    _KEPT[encoder] = made_by, path, sentences
    return embeddings[rows]


def _read_whole(path, shape):
    """The float32 array of a cache's file; None where there is none, or it is not whole, which is said.

    Raises:
      UserError: the file cannot be read.
    """
    if not path.exists():
        return None
    try:
        embeddings = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        logging.warning("%s is not whole (%s): made again", path, error)
        return None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}), expected a cache's file") from error
    if embeddings.shape != shape or embeddings.dtype != np.float32:
        logging.warning("%s holds %s numbers, expected %s: made again", path, embeddings.shape, shape)
        return None
    logging.info("Embeddings read from %s", path)
    return embeddings


def _of_what_is_kept(encoder, made_by, path, sentences):
    """Embeddings of the sentences out of the file that this encoder's were last kept in, None if one is not in it.

    It is one beside `path`, which has no whole file.
    """
    kept_by, kept_path, kept = _KEPT.get(encoder, (None, None, None))
    if kept_by != made_by or kept_path.parent != path.parent or kept_path == path:
        return None
    row_of = {key: row for row, key in enumerate(_keys(kept))}
    rows = [row_of.get(key) for key in _keys(sentences)]
    embeddings = None if None in rows else _read_whole(kept_path, (int(kept.nrows()), encoder.embedding_size))
    return None if embeddings is None else embeddings[rows]


def _keys(pieces):
    """Bytes that tell each row of a RaggedTensor."""
    values, splits = pieces.flat_values.numpy(), pieces.row_splits.numpy()
    return (values[start:stop].tobytes() for start, stop in itertools.pairwise(splits))
