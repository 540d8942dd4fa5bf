"""Batch training pairs in the original's order with tf.data."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.original.settings import DataSettings
from bert_flow_tf.tasks.tasks import Examples, Task, get_task, read_train
from bert_flow_tf.training.devices import for_replicas
from bert_flow_tf.training.run_records import array_digest

SHUFFLE_BUFFER = 1000
# This many sentences are embedded together, so that sentences of similar length share a batch.
SENTENCES_AHEAD = 2048
Tokens = dict[str, tf.Tensor]
# An `Embed` function maps rows of `TokenizedPairs.pieces` and their numbers in the run, both
# int64 [k], to embeddings [k, D].
Embed = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class TokenizedPairs:
    """Tokenized sentence pairs: rows 2i and 2i+1 are pair i."""

    pieces: Sequence[np.ndarray]  # 2n rows of ids, int32 [t], without [CLS] and [SEP]
    labels: np.ndarray  # float32 [n] in [0, 1], or int32 class ids


def read_training_data(
    data: DataSettings, tokenizer: Tokenizer, max_seq_length: int, num_labelled: int, seed: int
) -> tuple[TokenizedPairs, int]:
    """Read a task's pairs; hide labels, shuffle and duplicate like the original.

    Return the pairs and their number before duplication. Keep `num_labelled` labels, if positive.
    """
    task = get_task(data.task_name)
    examples = read_train(task, data.data_dir, bool(data.use_full_for_training))
    labels = scaled_labels(examples, task)
    if num_labelled > 0:
        # The original marks a missing label by -10 before it scales the labels.
        hidden = np.random.default_rng([seed, 1]).permutation(len(labels))[num_labelled:]
        labels[hidden] = -10 / task.label_max if task.is_regression else -10
    pairs = tokenize_pairs(tokenizer, examples, labels, max_seq_length)
    # The original shuffles once, before it writes its records.
    order = np.random.default_rng([seed, 0]).permutation(len(labels))
    pairs = TokenizedPairs([pairs.pieces[i] for i in _sentences(order)], labels[order])
    return duplicate(pairs, data.dupe_factor, tokenizer.mask_id, seed), len(examples)


def scaled_labels(examples: Examples, task: Task) -> np.ndarray:
    """Return float32 scores in [0, 1], or int32 class ids."""
    if not task.is_regression:
        return np.array(examples.labels, np.int32)
    return examples.labels.astype(np.float32) / np.float32(task.label_max)


def tokenize_pairs(
    tokenizer: Tokenizer, examples: Examples, labels: np.ndarray, max_seq_length: int
) -> TokenizedPairs:
    sentences = [
        s for pair in zip(examples.sentences_a, examples.sentences_b, strict=True) for s in pair
    ]
    return TokenizedPairs(tokenizer.rows(sentences, max_seq_length).rows, labels)


def _sentences(indices: np.ndarray) -> np.ndarray:
    return np.stack([2 * indices, 2 * indices + 1], axis=-1).reshape(-1)


def duplicate(pairs: TokenizedPairs, dupe_factor: int, mask_id: int, seed: int) -> TokenizedPairs:
    """Repeat each pair; mask one random token per sentence in the copies.

    A sentence without tokens does not change; the original fails on it.
    """
    if dupe_factor == 1:
        return pairs
    generator = np.random.default_rng([seed, 2])
    rows = []
    for a, b in zip(pairs.pieces[::2], pairs.pieces[1::2], strict=True):
        for copy in range(dupe_factor):
            for pieces in (a, b):
                masked = pieces.copy()
                if copy and len(masked):
                    masked[generator.integers(len(masked))] = mask_id
                rows.append(masked)
    return TokenizedPairs(rows, np.repeat(pairs.labels, dupe_factor))


def fingerprint(pairs: TokenizedPairs) -> str:
    return array_digest([*flat_pieces(pairs.pieces), pairs.labels])


def flat_pieces(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return all rows' ids, int32, and the rows' lengths, int64."""
    return np.concatenate(rows), np.array([len(row) for row in rows], np.int64)


def ordered(num_pairs: int, batch_size: int, seed: int) -> tf.data.Dataset:
    """Return an endless dataset of step numbers and pairs' indices, int64 [batch_size].

    As in the original, a buffer of 1,000 pairs shuffles every epoch differently, and a batch may
    span epochs. A second iteration over the same dataset would have another order.
    """
    indices = tf.data.Dataset.range(num_pairs)
    indices = indices.shuffle(SHUFFLE_BUFFER, seed=seed, reshuffle_each_iteration=True)
    return indices.repeat().batch(batch_size, drop_remainder=True).enumerate()


def token_batches(
    pairs: TokenizedPairs,
    order: tf.data.Dataset,
    pack: Callable[[tf.RaggedTensor], Tokens],
    skip_steps: int,
    rows: slice,
) -> tf.data.Dataset:
    """Return endless batches of token ids [batch, 2, t] and labels [batch].

    The order depends only on the seed, so `skip_steps` resumes exactly where an interrupted run
    stopped. `rows` selects a worker's part of each batch. For dropout, the input `occurrence`,
    int64 [batch, 2], numbers a run's sentences.

    Args:
      order: the dataset of `ordered`.
      pack: function from word pieces, int32 [n, (t)], to tokens, see `Tokenizer.pack`.
    """
    labels = tf.constant(pairs.labels)
    pieces = tf.RaggedTensor.from_row_lengths(*flat_pieces(pairs.pieces))
    size = order.element_spec[1].shape[0]
    numbers = tf.reshape(tf.range(2 * size, dtype=tf.int64), [size, 2])[rows]

    def batch(step: tf.Tensor, indices: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        indices = indices[rows]
        sentences = tf.reshape(tf.stack([2 * indices, 2 * indices + 1], axis=-1), [-1])
        tokens = pack(tf.gather(pieces, sentences))
        inputs = {
            name: tf.reshape(value, [-1, 2, tf.shape(value)[1]]) for name, value in tokens.items()
        }
        return inputs | {"occurrence": step * 2 * size + numbers}, tf.gather(labels, indices)

    return for_replicas(order.skip(skip_steps).map(batch, num_parallel_calls=1, deterministic=True))


def group_steps(batch_size: int) -> int:
    """Return the number of steps whose sentences are embedded together."""
    return max(1, SENTENCES_AHEAD // (2 * batch_size))


def embedded_batches(
    pairs: TokenizedPairs,
    order: tf.data.Dataset,
    embed: Embed,
    width: int,
    steps: int,
    skip_steps: int,
    rows: slice,
) -> tf.data.Dataset:
    """Return the batches of `token_batches` as embeddings [batch, 2, width].

    `embed` gets the sentences of many steps at once, so that sentences of similar length share a
    batch. The groups do not depend on `skip_steps`, so a resumed run has the same bits.
    """
    size = order.element_spec[1].shape[0]
    group = group_steps(size)
    groups_done, steps_done = divmod(skip_steps, group)
    groups = order.take(steps).batch(group).skip(groups_done)
    numbers = np.arange(2 * size).reshape(size, 2)[rows]

    def embedded() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for step, indices in for_replicas(groups).as_numpy_iterator():
            indices = indices[:, rows]
            occurrences = step[:, np.newaxis, np.newaxis] * 2 * size + numbers
            embeddings = embed(_sentences(indices), occurrences.reshape(-1))
            yield from zip(
                embeddings.reshape(*occurrences.shape, width), pairs.labels[indices], strict=True
            )

    specs = (
        tf.TensorSpec([len(numbers), 2, width]),
        tf.TensorSpec([len(numbers)], pairs.labels.dtype),
    )
    batches = tf.data.Dataset.from_generator(embedded, output_signature=specs).skip(steps_done)
    return for_replicas(batches.map(lambda embedding, labels: ({"embedding": embedding}, labels)))
