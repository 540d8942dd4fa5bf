"""Sentences from any iterable, and what is computed of each: in their order, like lengths together, repeats once."""

import collections.abc
import hashlib
import itertools

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from bert_flow_tf import embedding, input_pipeline
from bert_flow_tf.errors import UserError

# Sentences that are sorted by length together. What is held of a stream at a time does not grow beyond these.
PART = 16384


def sentence_list(sentences, name="sentences"):
    """list of the strings of an iterable, checked as `parts` checks them."""
    return [sentence for part in parts(sentences, name) for sentence in part]


def parts(sentences, name="sentences", size=PART):
    """Yields lists of up to `size` strings of the iterable, in its order.

    Raises:
      UserError: it is no iterable of strings, or has no order; the line names the element.
    """
    if isinstance(sentences, (str, bytes, dict, collections.abc.Set)) or not isinstance(
        sentences, collections.abc.Iterable
    ):
        raise UserError(f"{name}: found {_found(sentences)}, expected strings in a list or another ordered iterable")
    iterator = iter(sentences)
    position = 0
    while part := list(itertools.islice(iterator, size)):
        for i, sentence in enumerate(part, start=position):
            if not isinstance(sentence, str):
                raise UserError(f"{name}[{i}]: found {_found(sentence)}, expected a string")
            try:
                sentence.encode()
            except UnicodeEncodeError as error:
                raise UserError(
                    f"{name}[{i}]: found half of a surrogate pair at character {error.start}, expected text that "
                    "UTF-8 can hold"
                ) from None
        position += len(part)
        yield part


def _found(value):
    shown = repr(value).splitlines()[0] if value is not None else ""
    kind = "None" if value is None else f"{type(value).__name__} {shown}"
    return kind if len(kind) <= 80 else f"{kind[:77]}..."


class PerSentence:
    """A function of token tensors, applied to sentences.

    Args:
      function: from the dict of int32 [k, t] that `Tokenizer.pack` gives to float32 [k, *shape].
      tokenizer: `Tokenizer`.
      shape: of a sentence's value.
      max_seq_length: word pieces that a sentence is cut to, [CLS] and [SEP] included.
    """

    def __init__(self, function, tokenizer, *, shape, max_seq_length):
        self._function = function
        self._tokenizer = tokenizer
        self._shape = tuple(shape)
        self._max_seq_length = max_seq_length

    def all(self, sentences, *, batch_size=None, show_progress_bar=None):
        """float32 [n, *shape] of all sentences of the iterable; one that recurs anywhere is computed once."""
        values = np.empty((0, *self._shape), np.float32)
        row_of = {}
        with _progress(sentences, show_progress_bar) as progress:
            for part in parts(sentences):
                pieces, rows = self._distinct(part)
                digests = _digests(pieces)
                known = np.array([digest in row_of for digest in digests], bool)
                part_values = np.empty((len(digests), *self._shape), np.float32)
                part_values[known] = values[[row_of[digest] for digest in itertools.compress(digests, known)]]
                new = np.flatnonzero(~known)
                part_values[new] = self._values(tf.gather(pieces, new), batch_size)
                first_rows = np.unique(rows, return_index=True)[1]
                row_of.update((digests[i], len(values) + int(first_rows[i])) for i in new)
                before = len(values)
                # In place: a copy would hold everything twice.
                values.resize((before + len(part), *self._shape), refcheck=False)
                values[before:] = part_values[rows]
                progress.update(len(part))
        return values

    def in_parts(self, sentences, *, batch_size=None, show_progress_bar=None):
        """Yields pairs of a list of up to `PART` sentences and their float32 [k, *shape], and keeps nothing."""
        with _progress(sentences, show_progress_bar) as progress:
            for part in parts(sentences):
                pieces, rows = self._distinct(part)
                yield part, self._values(pieces, batch_size)[rows]
                progress.update(len(part))

    def token_values(self, sentences, *, batch_size=None, show_progress_bar=None):
        """list of float32 [t_i, width]: what the function, here to [k, t, width], gives at each sentence's ids."""
        found = []
        with _progress(sentences, show_progress_bar) as progress:
            for part in parts(sentences):
                pieces, rows = self._distinct(part)
                distinct = [None] * int(pieces.nrows())
                for batch, values, mask in self._batches(pieces, batch_size):
                    for i, value, length in zip(batch, values, mask.sum(axis=1), strict=True):
                        distinct[i] = value[:length].copy()
                found += [distinct[row] for row in rows]
                progress.update(len(part))
        return found

    def _distinct(self, part):
        return embedding.distinct(input_pipeline.tokenize(self._tokenizer, part, self._max_seq_length))

    def _values(self, pieces, batch_size):
        values = np.empty((pieces.nrows(), *self._shape), np.float32)
        for batch, computed, _ in self._batches(pieces, batch_size):
            values[batch] = computed
        return values

    def _batches(self, pieces, batch_size):
        """Yields (indices [k], the function's values of these [k, ...], their mask [k, t]) for all of the pieces."""
        if batch_size is not None and (
            not isinstance(batch_size, (int, np.integer)) or isinstance(batch_size, bool) or batch_size < 1
        ):
            raise UserError(f"batch_size: found {batch_size!r}, expected a whole number of 1 or more")

        def compute(batch):
            tokens = self._tokenizer.pack(tf.gather(pieces, batch), self._max_seq_length)
            return batch, self._function(tokens).numpy(), tokens["input_mask"].numpy()

        batches = embedding.length_batches(pieces.row_lengths().numpy() + 2, batch_size)
        yield from embedding.two_at_a_time(compute, batches)


def _digests(pieces):
    values, splits = pieces.flat_values.numpy(), pieces.row_splits.numpy()
    return [
        hashlib.blake2b(values[start:stop].tobytes(), digest_size=16).digest()
        for start, stop in itertools.pairwise(splits)
    ]


def _progress(sentences, show_progress_bar):
    total = len(sentences) if isinstance(sentences, collections.abc.Sized) else None
    hidden = None if show_progress_bar is None else not show_progress_bar
    return tqdm(total=total, desc="encode", unit="sentence", disable=hidden)
