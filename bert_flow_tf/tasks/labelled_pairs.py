"""Read pairs of sentences with scores from a user's file."""

from typing import Any

import numpy as np

from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.reading import AnyPath, reading
from bert_flow_tf.tasks.sentence_files import PAIR, first_row, pairs_format, read_tables
from bert_flow_tf.vectors.texts import BLOCK_ROWS

LabelledPairs = tuple[list[str], list[str], list[float]]


def read_labelled_pairs(path: AnyPath, columns: str | None = None) -> LabelledPairs:
    """Return a file's first sentences, second sentences and scores.

    Args:
      path: TSV, CSV, JSON lines or Parquet, as of `sentence_files.read_sentences`.
      columns: names or numbers of the three columns, separated by commas; by default `sentence1`,
        `sentence2` and `score`, or the first three columns of a TSV without these names.

    Raises:
      UserError: the file is unreadable, has no pairs, or a score is no number.
    """
    try:
        file_format = pairs_format(path)
    except UserError as error:
        raise UserError(f"--pairs={error}") from error
    names = columns.split(",") if columns else _default_columns(path, file_format)
    if len(names) != 3:
        raise ArgumentError(
            f"pair_columns: found {columns}, expected three names, separated by commas"
        )
    pairs: LabelledPairs = ([], [], [])
    for sentences, kept in read_tables(
        path, file_format=file_format, column=names[0], kept=names[1:], rows=BLOCK_ROWS
    ):
        with reading(path, "two sentences and a number in each row"):
            pairs[0].extend(sentences)
            pairs[1].extend(kept.column(0).to_pylist())
            pairs[2].extend(_number(one, path, names[2]) for one in kept.column(1).to_pylist())
    if not pairs[0]:
        raise UserError(f"--pairs={path}: found no pairs, expected at least one")
    return pairs


def _default_columns(path: AnyPath, file_format: str) -> list[str]:
    """Return the names of the columns, or a TSV's first three places."""
    if file_format != "tsv":
        return PAIR
    found = first_row(path, file_format)
    if not any(found):
        raise UserError(f"--pairs={path}: found no pairs, expected at least one")
    return PAIR if {*PAIR} <= {*found} else ["1", "2", "3"]


def _number(value: Any, path: AnyPath, column: str) -> float:
    """Return a score; raise `UserError` that names the option of columns."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UserError(
            f"--pairs={path}: column {column}: found {value!r:.40}, expected a number; "
            "--pair_columns A,B,SCORE chooses the columns"
        ) from None


def checked_pairs(pairs: Any) -> LabelledPairs:
    """Return pairs; raise `UserError` for another shape or for equal scores."""
    try:
        a, b, scores = ([*side] for side in pairs)
        scores = [float(score) for score in scores]
        is_valid = not isinstance(pairs, str) and all(isinstance(one, str) for one in (*a, *b))
    except (TypeError, ValueError):
        is_valid = False
    if not is_valid:
        found = f"{pairs!r:.40}"
        raise ArgumentError(
            f"pairs: found {found}, expected (first sentences, second sentences, scores)"
        )
    if not len(a) == len(b) == len(scores):
        raise UserError(
            f"pairs: found {len(a)} and {len(b)} sentences, {len(scores)} scores, expected equal "
            "numbers"
        )
    if not np.isfinite(scores).all() or len(set(scores)) < 2:
        raise UserError(
            f"pairs: found {[*dict.fromkeys(scores)][:3]} as scores, expected finite numbers that "
            "differ"
        )
    return a, b, scores
