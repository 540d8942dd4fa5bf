"""BERT's WordPiece in the TensorFlow graph, with the original's ids.

As in the BERT authors' code: clean the text, put spaces around CJK characters and split on white
space; for uncased vocabularies, lower-case, decompose (NFD) and drop combining marks; then split
off punctuation and match the longest piece first. This module uses only the matcher of
tensorflow-text, because its `BertTokenizer` normalizes by NFKC and case folding, which gives other
ids for ß, ﬁ, ½ or full-width letters.
"""

import os
import pathlib
import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text as text
from tqdm import tqdm

from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.reading import read_lines, reading
from bert_flow_tf.encoder.weights import TextRules
from glow.tracing import traced_once

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
INSTEAD = "otherwise use bert_flow_tf.calibration with the model's own library"
MAX_WORD_CHARS = 200  # A longer word becomes [UNK].
# the first of 65,534 private characters, which TF1 keeps as letters of unknown words
_PRIVATE = 0xF0000
# Python's str.split() also splits on the separators Zl and Zp, which the original's cleaning keeps.
_WHITE_SPACE = r"[\s\p{Z}]"
# The original removes control and format characters that are not white space, and the replacement
# character U+FFFD.
_REMOVED = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x{9f}\p{Cf}\x{fffd}]"
_CJK = (
    r"([\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{20000}-\x{2a6df}\x{2a700}-\x{2b73f}"
    r"\x{2b740}-\x{2b81f}\x{2b820}-\x{2ceaf}"
    r"\x{f900}-\x{faff}\x{2f800}-\x{2fa1f}])"
)
# All ASCII except letters, digits and space counts as punctuation, also "$" and "^", which Unicode
# calls symbols.
_PUNCTUATION = r"([!-/:-@\[-`{-~\p{P}])"
# TF-Hub gives an encoder's inputs these names; each is int32 [n, t].
TOKEN_INPUTS = ("input_word_ids", "input_mask", "input_type_ids")
TOKEN_SPECS = dict.fromkeys(TOKEN_INPUTS, tf.TensorSpec([None, None], tf.int32))
_TEXTS_AT_ONCE = 4096


class Tokenized(NamedTuple):
    """Texts as rows of word pieces.

    Attributes:
      rows: each text's ids, int32 [t], without [CLS] and [SEP].
      is_cut: bool [n], True for a text that had more pieces.
      is_unknown: bool [n], True for a text of nothing but unknown pieces.
    """

    rows: list[np.ndarray]
    is_cut: np.ndarray
    is_unknown: np.ndarray


class Tokenizer(tf.Module):
    """Convert sentences to BERT's ids, eagerly or in a graph.

    Args:
      vocab: word pieces in the order of their ids.
      rules: case, accents, CJK characters and added tokens.
    """

    def __init__(self, vocab: list[str], rules: TextRules) -> None:
        super().__init__(name="tokenizer")
        self._lower = rules.do_lower_case
        self._splits_cjk = rules.tokenize_chinese_chars
        self._strip_accents = self._lower if rules.strip_accents is None else rules.strip_accents
        self.vocab_size = len(vocab)
        # An added token becomes one private character, which no rule splits. Longer tokens are
        # found first.
        tokens = sorted(rules.added_tokens, key=len, reverse=True)
        stand_ins = {token: chr(_PRIVATE + i) for i, token in enumerate(tokens)}
        vocab = [stand_ins.get(piece, piece) for piece in vocab]
        texts = [
            self._normalize(token).numpy().decode() if rules.added_tokens[token] else token
            for token in tokens
        ]
        self._added = [
            (rules.added_tokens[token], re.escape(text), f" {stand_ins[token]} ")
            for token, text in zip(tokens, texts, strict=True)
        ]
        self.pad_id, self.unknown_id, self.cls_id, self.sep_id, self.mask_id = (
            vocab.index(token) for token in SPECIAL
        )
        # `tokenize` limits characters, which have at most four bytes.
        options = {
            "unknown_token": "[UNK]",
            "max_bytes_per_word": 4 * MAX_WORD_CHARS,
            "token_out_type": tf.int32,
        }
        with reading("vocabulary", "word pieces"):
            self._matcher = text.FastWordpieceTokenizer(vocab, no_pretokenization=True, **options)
        # All models with this tokenizer share the function.
        self._traced = traced_once(
            self._cut_pieces, tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.int32)
        )

    def rows(self, texts: Sequence[str], max_seq_length: int) -> Tokenized:
        """Return the texts' pieces, cut to `max_seq_length` - 2."""
        starts: Iterable[int] = range(0, len(texts), _TEXTS_AT_ONCE)
        if len(texts) > 50_000:
            starts = tqdm(starts, desc="tokenize", disable=None)  # on a terminal only
        limit = tf.constant(max_seq_length - 2)
        rows: list[np.ndarray] = []
        is_cut = np.zeros(len(texts), bool)
        is_unknown = np.zeros(len(texts), bool)
        for start in starts:
            chunk = slice(start, start + _TEXTS_AT_ONCE)
            encoded = tf.constant([one.encode() for one in texts[chunk]], tf.string)
            values, ends, *found = (one.numpy() for one in self._traced(encoded, limit))
            rows += np.split(values, ends[:-1])
            is_cut[chunk], is_unknown[chunk] = found
        return Tokenized(rows, is_cut, is_unknown)

    def _cut_pieces(self, sentences: tf.Tensor, limit: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Return flat ids, at most `limit` a row, and the rows' ends.

        Also return True for each cut row, and for each row of unknown pieces alone.
        """
        pieces = self.tokenize(sentences)
        kept = pieces[:, :limit]
        lengths = kept.row_lengths()
        is_unknown = tf.cast(tf.equal(kept.flat_values, self.unknown_id), tf.int64)
        unknown = tf.math.unsorted_segment_sum(is_unknown, kept.value_rowids(), kept.nrows())
        return (
            kept.flat_values,
            tf.cumsum(lengths),
            lengths < pieces.row_lengths(),
            (lengths > 0) & (unknown == lengths),
        )

    def tokenize(self, sentences: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of the sentences' pieces: ragged int32 [n, (pieces)]."""
        cleaned = tf.strings.unicode_transcode(sentences, "UTF-8", "UTF-8", errors="ignore")
        if self._added:
            cleaned = tf.strings.regex_replace(
                cleaned, rf"[{chr(_PRIVATE)}-\x{{ffffd}}]", "\U0010fffd"
            )
        cleaned = self._normalize(self._keep_whole(cleaned, normalized=False))
        cleaned = self._keep_whole(cleaned, normalized=True)
        cleaned = tf.strings.regex_replace(cleaned, _PUNCTUATION, r" \1 ")
        words = tf.strings.split(tf.strings.regex_replace(cleaned, _WHITE_SPACE + "+", " "))
        too_long = tf.strings.length(words.flat_values, unit="UTF8_CHAR") > MAX_WORD_CHARS
        words = words.with_flat_values(tf.where(too_long, "[UNK]", words.flat_values))
        return self._matcher.tokenize(words).merge_dims(-2, -1)

    def _normalize(self, sentences: tf.Tensor) -> tf.Tensor:
        cleaned = tf.strings.regex_replace(sentences, _REMOVED, "")
        if self._splits_cjk:
            cleaned = tf.strings.regex_replace(cleaned, _CJK, r" \1 ")
        if self._lower:
            cleaned = tf.strings.lower(cleaned, encoding="utf-8")
        if self._strip_accents:
            cleaned = tf.strings.regex_replace(text.normalize_utf8(cleaned, "NFD"), r"\p{Mn}", "")
        return cleaned

    def _keep_whole(self, sentences: tf.Tensor, *, normalized: bool) -> tf.Tensor:
        for is_normalized, pattern, stand_in in self._added:
            if is_normalized == normalized:
                sentences = tf.strings.regex_replace(sentences, pattern, stand_in)
        return sentences

    def pack(
        self, pieces: tf.RaggedTensor, max_seq_length: int, pad_to_max: bool = False
    ) -> dict[str, tf.Tensor]:
        """Return encoder inputs: rows of `[CLS] pieces[:max_seq_length - 2] [SEP]`.

        Each is int32 [n, t]: `input_word_ids`, `input_mask` (1 for ids, 0 for padding),
        `input_type_ids` (all 0). Rows are padded to the longest one, or to `max_seq_length` (3 or
        more) if `pad_to_max`.
        """
        # Dense tensors need fewer operations than ragged ones, which matters for single sentences
        # on a server.
        limit = max_seq_length - 2
        lengths = tf.minimum(pieces.row_lengths(), limit)
        ids = pieces.to_tensor(default_value=self.pad_id, shape=[None, limit])
        if not pad_to_max:
            ids = ids[:, : tf.reduce_max(lengths)]
        end = tf.fill([tf.shape(ids)[0], 1], self.pad_id)
        ids = tf.concat([tf.fill(tf.shape(end), self.cls_id), ids, end], axis=1)
        position = tf.range(tf.shape(ids, lengths.dtype)[1])
        last = lengths[:, tf.newaxis] + 1
        return {
            "input_word_ids": tf.where(position == last, self.sep_id, ids),
            "input_mask": tf.cast(position <= last, tf.int32),
            "input_type_ids": tf.zeros_like(ids),
        }

    def __call__(
        self, sentences: tf.Tensor, max_seq_length: int, pad_to_max: bool = False
    ) -> dict[str, tf.Tensor]:
        return self.pack(self.tokenize(sentences), max_seq_length, pad_to_max)


def read_vocabulary(path: str | os.PathLike) -> list[str]:
    """Return a file's word pieces in the order of their ids."""
    vocab = [line.strip(" \t\r") for line in read_lines(path, "a vocabulary", keep_empty_end=True)]
    seen: set[str] = set()
    for line, piece in enumerate(vocab, 1):
        if not piece or piece in seen:
            found = f"{piece!r} is {'repeated' if piece else 'empty'}"
            raise UserError(f"{path}, line {line}: {found}, expected a new piece")
        seen.add(piece)
    check_special_tokens(vocab, path)
    return vocab


def write_vocabulary(path: pathlib.Path, vocab: Sequence[str]) -> None:
    """Write word pieces as `read_vocabulary` reads them."""
    path.write_text("".join(f"{piece}\n" for piece in vocab), encoding="utf-8")


def check_special_tokens(vocab: Collection[str], path: str | os.PathLike) -> None:
    """Raise `UserError` if a vocabulary lacks one of BERT's special tokens."""
    if missing := [token for token in SPECIAL if token not in vocab]:
        found = f"no {' '.join(missing)} among its {len(vocab)} pieces"
        raise UserError(f"{path}: {found}, expected {' '.join(SPECIAL)}; {INSTEAD}")


def is_uncased(given: bool | None, vocab: list[str], folder: str) -> bool:
    """True if an encoder's text must be lower-cased.

    A folder's name such as `uncased_L-12_H-768_A-12` decides; without one, `given` or, if None, the
    vocabulary decides.

    Raises:
      ArgumentError: `given` contradicts the name, or is True although the vocabulary has capitals.
    """
    named = re.match("(?:.*_)?(un)?cased_", folder)
    expected = bool(named[1]) if named else not has_capitals(vocab)
    if given not in (None, expected) and (named or given):
        found = f"the name {folder}" if named else f"capitals in the vocabulary of {folder}"
        raise ArgumentError(f"do_lower_case: found {given} and {found}, expected {expected}")
    return expected if given is None else given


def has_capitals(vocab: list[str]) -> bool:
    """True if a word piece has capitals, so the vocabulary is cased."""
    return any(
        piece != piece.lower()
        for piece in vocab
        if not (piece.startswith("[") and piece.endswith("]"))
    )
