"""Sentence pairs as token ids, in the original's order, as tf.data batches."""

import dataclasses
import hashlib

import numpy as np
import tensorflow as tf
from tqdm import tqdm

SHUFFLE_BUFFER = 1000
MASKED_LABEL = -10.0
_TOKENIZE_CHUNK = 4096


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
