"""Sentences as batches with masked word pieces: BERT's masking, another one each time that a sentence is met."""

import dataclasses

import numpy as np
import tensorflow as tf

from bert_flow_tf.encoder.tokenizer import Tokenizer
from bert_flow_tf.model.masked_lm import NOT_PREDICTED
from bert_flow_tf.training.pairs import for_replicas

# BERT's masking: 80 % [MASK], 10 % unchanged, 10 % random.
_MASKED, _KEPT = 0.8, 0.9


@dataclasses.dataclass(frozen=True)
class Masking:
    """BERT's masking (Devlin et al. 2019, section 3.1), as TF1's `create_masked_lm_predictions` does it.

    Of a sentence's ids, [CLS] and [SEP] counted, the share `masked_lm_prob` is predicted, at least one; of whole words
    as many as fit, which may be none.

    Args:
      tokenizer: of the sentences.
      masked_lm_prob: as above.
      do_whole_word_mask: all pieces of a word are predicted or none: words in a random order, as long as the share
        holds them.
      max_seq_length: ids of the longest sentence.
      seed: what is masked is a function of this and a sentence's number, not of its batch.
    """

    tokenizer: Tokenizer
    masked_lm_prob: float
    do_whole_word_mask: bool
    max_seq_length: int
    seed: int

    def __call__(self, tokens: dict[str, tf.Tensor], numbers: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Return the masked tokens, a dict of int32 [n, t] as of `Tokenizer.pack`, and the labels, int32 [n, t].

        `numbers`, int64 [n], number each sentence among all that are met.
        """
        ids, length = tokens["input_word_ids"], tf.reduce_sum(tokens["input_mask"], axis=1)
        width = tf.shape(ids)[1]
        draws = tf.map_fn(self._draws, numbers, fn_output_signature=tf.float32)
        # [n, t] each: order of the words, what becomes of a piece, and the piece that may come in its place.
        order, fate, other = tf.unstack(draws[:, :width], axis=2)
        position = tf.range(width)
        can = (position > 0) & (position < length[:, tf.newaxis] - 1)
        starts = can
        if self.do_whole_word_mask:
            starts &= ~tf.gather(self.tokenizer.continues_word, ids) | (position == 1)
        predicted = self._predicted(can, starts, order, self._most(length))
        random_piece = tf.cast(other * self.tokenizer.vocab_size, tf.int32)
        changed = tf.where(fate < _MASKED, self.tokenizer.mask_id, tf.where(fate < _KEPT, ids, random_piece))
        masked = tokens | {"input_word_ids": tf.where(predicted, changed, ids)}
        return masked, tf.where(predicted, ids, NOT_PREDICTED)

    def _draws(self, number: tf.Tensor) -> tf.Tensor:
        """Draw uniform numbers [max_seq_length, 3] for the sentence of this number."""
        return tf.random.stateless_uniform([self.max_seq_length, 3], [self.seed, number], alg="philox")

    def _most(self, length: tf.Tensor) -> tf.Tensor:
        share = tf.cast(length, tf.float64) * tf.constant(self.masked_lm_prob, tf.float64)
        return tf.maximum(tf.cast(tf.round(share), tf.int32), 1)

    @staticmethod
    def _predicted(can: tf.Tensor, starts: tf.Tensor, order: tf.Tensor, most: tf.Tensor) -> tf.Tensor:
        """Return bool [n, t]: the pieces of the words that are taken.

        Args:
          can, starts: bool [n, t], the pieces that can be taken, and those of them that begin a word.
          order: float32 [n, t] in [0, 1); words are looked at in the order of their first pieces' numbers.
          most: int32 [n], pieces that may be taken in all; a word that would be too many is passed over.
        """
        word = tf.where(can, tf.cumsum(tf.cast(starts, tf.int32), axis=1), 0)
        same = (word[:, :, tf.newaxis] == word[:, tf.newaxis]) & can[:, :, tf.newaxis]
        sizes = tf.where(starts, tf.reduce_sum(tf.cast(same, tf.int32), axis=2), 0)
        looked_at = tf.argsort(tf.where(starts, order, 1.0), stable=True)

        def take(taken: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
            return tf.where(taken + size <= most, taken + size, taken)

        taken = tf.scan(take, tf.transpose(tf.gather(sizes, looked_at, batch_dims=1)), tf.zeros_like(most))
        grows = tf.transpose(taken) > tf.pad(tf.transpose(taken), [[0, 0], [1, 0]])[:, :-1]
        is_taken = tf.gather(grows, tf.argsort(looked_at), batch_dims=1)
        return tf.reduce_any(same & is_taken[:, tf.newaxis], axis=2)


def masked_batches(
    pieces: tf.RaggedTensor, masking: Masking, *, batch_size: int, skip_steps: int = 0
) -> tf.data.Dataset:
    """Return endless tf.data batches of `MaskedLanguageModel`'s inputs and labels; sentences are ragged int32 [n, (t)].

    Every epoch has an order of its own; epochs follow each other without a break. Order and masks depend on the seed
    alone, so that `skip_steps` resumes exactly where an interrupted run stopped.
    """
    count = pieces.nrows(tf.int64)

    def batch(step: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        numbers = step * batch_size + tf.range(batch_size, dtype=tf.int64)
        epochs = numbers // count
        seeds = tf.stack([tf.fill([batch_size], tf.constant(masking.seed, tf.int64)), epochs, tf.zeros_like(epochs)], 1)
        # Of each index its place in a permutation that no memory holds.
        rows = tf.raw_ops.RandomIndexShuffle(
            index=numbers % count, seed=seeds, max_index=tf.fill([batch_size], count - 1)
        )
        tokens = masking.tokenizer.pack(tf.gather(pieces, rows), masking.max_seq_length)
        inputs, labels = masking(tokens, numbers)
        return inputs | {"occurrence": numbers}, labels

    steps = tf.data.Dataset.range(skip_steps, np.iinfo(np.int64).max)
    return for_replicas(steps.map(batch, num_parallel_calls=1, deterministic=True))
