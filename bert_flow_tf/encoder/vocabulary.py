"""Vocabularies of word pieces: read from files, and learned from text. To read one, TensorFlow is not loaded."""

import collections
import os
from collections.abc import Iterable

from bert_flow_tf.data.tasks import read_lines
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.sentence_files import parts

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# A longer word is unknown.
MAX_WORD_CHARS = 200


def read_vocabulary(path: str | os.PathLike, size: int | None = None) -> list[str]:
    """List of the word pieces in the file at `path`, one per line; the line's number, from 0, is the piece's id.

    Raises:
      UserError: the file is missing or not UTF-8, a line is empty or repeats an earlier one, a special token is
      missing, or there are other than `size` pieces, a configuration's `vocab_size`, where that is given.
    """
    vocab = [line.strip(" \t\r") for line in read_lines(path, "a vocabulary", keeps_empty_end=True)]
    first_line: dict[str, int] = {}
    for number, piece in enumerate(vocab, start=1):
        if not piece:
            raise UserError(f"{path}, line {number}: empty, expected a word piece")
        if piece in first_line:
            raise UserError(
                f"{path}, line {number}: {piece!r} is already on line {first_line[piece]}, expected each piece once"
            )
        first_line[piece] = number
    missing = [token for token in SPECIAL if token not in first_line]
    if missing:
        raise UserError(f"{path}: no {' '.join(missing)} among its {len(vocab)} lines, expected {' '.join(SPECIAL)}")
    if size is not None and len(vocab) != size:
        raise UserError(f"{path}: found {len(vocab)} word pieces, expected the configuration's vocab_size, {size}")
    return vocab


def has_capitals(vocab: list[str]) -> bool:
    """Whether a vocabulary has pieces with capitals, not counting special tokens in brackets: then it is cased."""
    return any(piece != piece.lower() for piece in vocab if not (piece.startswith("[") and piece.endswith("]")))


def learn_vocabulary(sentences: Iterable[str], size: int, do_lower_case: bool) -> list[str]:
    """list of `size` word pieces that the sentences' words are made of, by tensorflow-text's learner of BERT's pieces.

    It gives up to `size`; as in BERT's own vocabularies, `[unused0]` and so on fill the rest.

    Raises:
      UserError: there is no text, or `size` has no room for its letters.
    """
    import tensorflow as tf
    from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as learner

    from bert_flow_tf.encoder.tokenizer import split_words

    counts: collections.Counter[str] = collections.Counter()
    for part in parts(sentences):
        words = split_words(tf.constant(part, tf.string), do_lower_case).flat_values.numpy()
        counts.update(word.decode() for word in words)
    try:
        pieces = learner.learn(counts, size, list(SPECIAL))
    except (ValueError, IndexError) as error:
        raise UserError(
            f"sentences: found {len(counts):,} different words, from which no {size:,} word pieces can be learned "
            f"({error}), expected more text or another vocab_size"
        ) from error
    if len(pieces) > size:
        raise UserError(
            f"vocab_size: found {size:,}, expected at least the {len(pieces):,} pieces of the text's letters"
        )
    return [*pieces, *(f"[unused{i}]" for i in range(size - len(pieces)))]
