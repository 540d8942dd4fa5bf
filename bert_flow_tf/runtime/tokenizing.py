"""Word-piece ids of texts, by the tokenizers library."""

import pathlib
from collections.abc import Sequence

import numpy as np
import tokenizers

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.reading import reading
from bert_flow_tf.vectors.batches import padded


class TextTokenizer:
    """Convert texts to rows of ids.

    Args:
      path: a `tokenizer.json`.
      max_seq_length: the most ids of a text, [CLS] and [SEP] included; longer ones are cut.
    """

    def __init__(self, path: pathlib.Path, max_seq_length: int) -> None:
        with reading(path, "a tokenizer"):
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        self._tokenizer.no_padding()
        self.limit(max_seq_length)
        found = []
        for token in ("[UNK]", "[CLS]", "[SEP]"):
            number = self._tokenizer.token_to_id(token)
            if number is None:
                raise UserError(f"{path}: found no {token}, expected BERT's word pieces")
            found.append(number)
        self._unknown, self._cls, self._sep = found

    def limit(self, max_seq_length: int) -> None:
        """Cut longer texts from now on."""
        self._most_pieces = max_seq_length - 2
        self._tokenizer.enable_truncation(self._most_pieces)

    def rows(self, texts: Sequence[str]) -> tuple[list[list[int]], list[bool]]:
        """Return ids without [CLS] and [SEP], and True for cut texts."""
        encoded = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        cut = [len(one) == self._most_pieces and bool(one.overflowing) for one in encoded]
        return [one.ids for one in encoded], cut

    def pack(self, rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and mask, int64 [n, t], [CLS] and [SEP] included."""
        return padded(rows, cls=self._cls, sep=self._sep)

    def only_unknown(self, rows: Sequence[Sequence[int]]) -> list[bool]:
        """Return True for each row of nothing but unknown pieces."""
        unknown = self._unknown
        return [len(row) > 0 and all(one == unknown for one in row) for row in rows]
