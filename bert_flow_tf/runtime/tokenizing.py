"""Word-piece ids of texts, by the tokenizers library."""

import pathlib
from collections.abc import Sequence

import numpy as np
import tokenizers

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import reading


class TextTokenizer:
    """Convert texts to ids, `[CLS]` and `[SEP]` included.

    Args:
      path: a `tokenizer.json`.
      max_seq_length: the most ids of a text; longer ones are cut.
    """

    def __init__(self, path: pathlib.Path, max_seq_length: int) -> None:
        with reading(path, "a tokenizer"):
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        self._tokenizer.no_padding()
        self.limit(max_seq_length)
        unknown = self._tokenizer.token_to_id("[UNK]")
        if unknown is None:
            raise UserError(f"{path}: found no [UNK], expected BERT's word pieces")
        self._unknown = unknown

    def limit(self, max_seq_length: int) -> None:
        """Cut longer texts from now on."""
        self._tokenizer.enable_truncation(max_seq_length)
        self._max_seq_length = max_seq_length

    def ids(self, texts: Sequence[str]) -> tuple[list[list[int]], list[bool]]:
        """Return ids of each text, and True for those cut."""
        encoded = self._tokenizer.encode_batch_fast(texts)
        cut = [len(one) == self._max_seq_length and bool(one.overflowing) for one in encoded]
        return [one.ids for one in encoded], cut

    def only_unknown(self, rows: Sequence[Sequence[int]]) -> list[bool]:
        """Return True for each row of nothing but unknown pieces."""
        unknown = self._unknown
        return [len(row) > 2 and all(one == unknown for one in row[1:-1]) for row in rows]


def padded(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return ids and mask, int64 [n, t], padded by 0."""
    if len(rows) == 1:
        ids = np.array(rows, np.int64)
        return ids, np.ones_like(ids)
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, np.newaxis]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = np.concatenate(rows)
    return ids, mask.astype(np.int64)
