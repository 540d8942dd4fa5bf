"""Read pairs of sentences with scores from a user's file."""

from typing import Any

import numpy as np

from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.reading import AnyPath
from bert_flow_tf.tasks.sentence_files import PAIR, FormNames, TextFile, read_tables

LabelledPairs = tuple[list[str], list[str], list[float]]
_NAMES = FormNames(column="--pair_columns", no_header="--no_pair_header")


def read_labelled_pairs(
    path: AnyPath, columns: str | None = None, *, no_header: bool = False
) -> LabelledPairs:
    """Return a file's first sentences, second sentences and scores.

    Args:
      path: TSV, CSV, JSON lines or Parquet, as of `sentence_files.TextFile`.
      columns: names or numbers of the three columns, separated by commas; by default `sentence1`,
        `sentence2` and `score`.
      no_header: True if the first row of TSV or CSV is a pair; then columns are numbers.

    Raises:
      UserError: the file is unreadable, has no pairs, or a score is no number.
    """
    names = tuple(columns.split(",")) if columns else PAIR
    if len(names) != 3:
        raise ArgumentError(
            f"pair_columns: found {columns}, expected three names, separated by commas"
        )
    file = TextFile(path=path, columns=names[:2], kept=names[2:], no_header=no_header, names=_NAMES)
    pairs: LabelledPairs = ([], [], [])
    for table in read_tables(file):
        first, second, scores = (table[name].to_pylist() for name in names)
        pairs[0].extend(first)
        pairs[1].extend(second)
        pairs[2].extend(_number(score, path, names[2]) for score in scores)
    if not pairs[0]:
        raise UserError(f"{path}: found no pairs, expected at least one")
    return pairs


def _number(value: Any, path: AnyPath, column: str) -> float:
    """Return a score; raise `UserError` that names the option of columns."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UserError(
            f"{path}: column {column}: found {value!r:.40}, expected a number; "
            f"{_NAMES.column} A,B,SCORE chooses the columns"
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
