"""Word-piece ids of texts, by the tokenizers library."""

import pathlib
from collections.abc import Sequence

import numpy as np
import tokenizers

from bert_flow_tf.common.reading import reading

# The names of an unknown piece, the first that a vocabulary has: MPNet's has both.
_UNKNOWN = ("[UNK]", "<unk>")


class TextTokenizer:
    """Convert texts to rows of ids, the encoder's special tokens included.

    Args:
      path: a `tokenizer.json`, whose `padding`, if any, has the id to pad with.
      max_seq_length: the most ids of a text; longer ones are cut.
    """

    def __init__(self, path: pathlib.Path, max_seq_length: int) -> None:
        with reading(path, "a tokenizer"):
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        self._pad = (self._tokenizer.padding or {}).get("pad_id", 0)
        self._tokenizer.no_padding()
        self._special = frozenset(self._tokenizer.encode("").ids)
        found = (self._tokenizer.token_to_id(token) for token in _UNKNOWN)
        self._unknown = next((number for number in found if number is not None), None)
        self.limit(max_seq_length)

    def limit(self, max_seq_length: int) -> None:
        """Cut longer texts from now on."""
        self._tokenizer.enable_truncation(max_seq_length)

    def rows(self, texts: Sequence[str]) -> tuple[list[list[int]], list[bool]]:
        """Return the rows of ids, and True for cut texts."""
        encoded = self._tokenizer.encode_batch_fast(texts)
        return [one.ids for one in encoded], [bool(one.overflowing) for one in encoded]

    def pack(self, rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and mask, int64 [n, t], padded to the longest row."""
        counts = np.array([len(row) for row in rows])[:, np.newaxis]
        mask = np.arange(counts.max()) < counts
        ids = np.full(mask.shape, self._pad, np.int64)
        ids[mask] = np.concatenate(rows)
        return ids, mask.astype(np.int64)

    def only_unknown(self, rows: Sequence[Sequence[int]]) -> list[bool]:
        """Return True for each row of nothing but unknown pieces."""
        return [
            self._unknown in row and self._special.issuperset(set(row) - {self._unknown})
            for row in rows
        ]
