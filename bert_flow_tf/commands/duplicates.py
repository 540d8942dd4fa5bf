"""`bert-flow duplicates`: groups of rows that say nearly the same."""

import collections
import csv
import pathlib
from collections.abc import Sequence
from typing import Any

import click
import numpy as np
from absl import logging

from bert_flow_tf.commands import options as opt
from bert_flow_tf.commands.outputs import locked_file, say
from bert_flow_tf.common.atomic import new_file
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.scale.shards import InputFile, input_files
from bert_flow_tf.tasks.sentence_files import read_tables
from bert_flow_tf.vectors import thresholds
from bert_flow_tf.vectors.texts import BLOCK_ROWS

# The cosines of 256 rows with all later ones are in memory at once.
_ROWS = 256
# Fewer rows may well be one group.
_FEW_ROWS = 20
# A group is a chain if two of this many members have a cosine so far below the threshold.
_SAMPLE = 256
_FAR = 0.2
_TIGHTER = "a higher --threshold, or a smaller --false_matches, gives tighter groups"
_FALSE_MATCHES = 1e-4


@click.command(
    epilog="\b\nbert-flow duplicates --model my_model --input tickets.csv --column text --keep id "
    "--out groups.csv"
)
@opt.model_options(exports=True)
@opt.with_options(opt.INPUT_FILES)
@click.option("--keep", callback=opt.name_list(), metavar="NAMES", help="Columns to copy.")
@click.option(
    "--threshold", type=opt.FloatRange(-1, 1), metavar="X", help="Least cosine of a pair."
)
@click.option(
    "--false_matches",
    type=opt.FloatRange(0, 1, True, True),
    metavar="X",
    help="Without --threshold: share of random pairs above it.  [default: 0.0001]",
)
@click.option("--out", required=True, metavar="FILE.csv", help="Groups.")
@click.option("--overwrite", is_flag=True, help="Replace --out.")
def duplicates(
    model: opt.ModelOptions,
    inputs: Sequence[str],
    input_format: str | None,
    keep: list[str] | None,
    threshold: float | None,
    false_matches: float | None,
    out: str,
    overwrite: bool,
    **columns: Any,
) -> None:
    """Write groups of rows whose sentences are equal or similar.

    A group is connected by pairs with a cosine above the threshold, so its ends may be less
    similar; a warning names such chains, and a group of more than a tenth of the rows. Sentences
    without a word that the encoder knows are kept apart. FILE.csv has the columns group (from 1,
    the largest first), cosine (to the nearest other sentence; 1 for equal ones), the kept columns
    and the sentence. --false_matches bounds matches of unrelated sentences, not of those that
    differ in a detail.
    """
    if threshold is not None and false_matches is not None:
        raise click.UsageError(
            "found --threshold and --false_matches, expected at most one of them"
        )
    if not out.endswith(".csv"):
        raise UserError(f"--out={out}: found another ending, expected .csv")
    path = locked_file(out, overwrite=overwrite)
    files = input_files(inputs, file_format=input_format, keep=keep, **columns)
    sentences, kept = _read(files, keep)
    different = {sentence: i for i, sentence in enumerate(dict.fromkeys(sentences))}
    if len(different) < 2:
        raise UserError(f"--input: found {len(different)} different sentences, expected 2 or more")
    share = false_matches or _FALSE_MATCHES
    if threshold is None:
        thresholds.check_enough(len(different), share)
    loaded = model.open()
    u = loaded.encode(list(different), normalize_embeddings=True)
    unreadable = loaded.only_unknown(list(different))
    # Their embeddings are all alike, so only equal ones are a group; zeros are like nothing.
    u[unreadable] = 0
    if threshold is None:
        found = thresholds.threshold(u[~unreadable], share)
        threshold = found.cosine
        click.echo(f"threshold: one in {1 / share:,.0f} random pairs exceeds a cosine of {found}")
    groups, nearest = similar_groups(u, threshold)
    rows = np.array([different[sentence] for sentence in sentences])
    # Equal sentences have a cosine of 1.
    cosines = np.where(np.bincount(rows, minlength=len(different)) > 1, 1.0, nearest)
    numbers = _numbers(groups[rows])
    header = ["group", "cosine", *(keep or ()), columns["column"] or "sentence"]
    _write(path, header, numbers, cosines[rows], kept, sentences)
    _warn_if_large(groups[rows])
    _warn_if_chained(u, groups, threshold)
    equal = len(sentences) - len(different)
    say(
        f"groups written: {out} ({numbers.max():,} groups of {np.count_nonzero(numbers):,} rows, "
        f"{equal:,} rows repeat another)"
    )


def _read(files: Sequence[InputFile], keep: list[str] | None) -> tuple[list[str], list[tuple]]:
    """Return the sentences of all files, and their kept columns."""
    sentences: list[str] = []
    kept: list[tuple] = []
    for file in files:
        for some, table in read_tables(**file._asdict(), rows=BLOCK_ROWS):
            sentences += some
            kept += zip(*table.to_pydict().values(), strict=True) if keep else [()] * len(some)
    return sentences, kept


def _numbers(groups: np.ndarray) -> np.ndarray:
    """Number the groups of rows [n] by size, from 1."""
    counts = collections.Counter(groups.tolist()).most_common()
    # A row without a group has the number 0.
    numbers = {group: i for i, (group, count) in enumerate(counts, 1) if count > 1}
    return np.array([numbers.get(group, 0) for group in groups.tolist()])


def _write(
    path: pathlib.Path,
    header: list[str],
    numbers: np.ndarray,
    cosines: np.ndarray,
    kept: Sequence[tuple],
    sentences: Sequence[str],
) -> None:
    """Write the rows [n] that have a group's number, by number."""
    with new_file(path) as new, new.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(header)
        for i in np.argsort(numbers, kind="stable")[np.count_nonzero(numbers == 0) :]:
            writer.writerow([numbers[i], f"{cosines[i]:.4f}", *kept[i], sentences[i]])


def _warn_if_large(groups: np.ndarray) -> None:
    """Warn if a group has more than a tenth of the rows."""
    count = len(groups)
    largest = int(np.bincount(groups).max())
    if count >= _FEW_ROWS and largest > count / 10:
        logging.warning("one group has %s of %s rows; %s", f"{largest:,}", f"{count:,}", _TIGHTER)


def _warn_if_chained(u: np.ndarray, groups: np.ndarray, threshold: float) -> None:
    """Warn about groups that hold unlike sentences.

    Args:
      u: embeddings [n, D] of norm 1, of the different sentences.
      groups: the group of each sentence [n].
    """
    by_group = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[by_group])) + 1
    chained = 0
    least = 1.0
    for members in np.split(by_group, starts):
        if len(members) < 3:
            continue
        # A sample tells whether a large group is a chain.
        members = members[:: max(1, len(members) // _SAMPLE)]
        cosine = float((u[members] @ u[members].T).min())
        least = min(least, cosine)
        chained += int(cosine < threshold - _FAR)
    if chained:
        logging.warning(
            "%s groups are chains: their least similar sentences have a cosine of %.2f; %s",
            f"{chained:,}",
            least,
            _TIGHTER,
        )


def similar_groups(u: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the group and the largest cosine of each row.

    The rows `u` [n, D] have norm 1. Groups are connected by cosines of `threshold` or more. Memory
    is linear in n.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(u)
    groups = np.arange(n)
    nearest = np.full(n, -1.0, np.float32)
    for start in range(0, n, _ROWS):
        cosines = u[start : start + _ROWS] @ u[start:].T
        np.fill_diagonal(cosines, -1)
        rows = slice(start, start + len(cosines))
        nearest[rows] = np.maximum(nearest[rows], cosines.max(axis=1))
        nearest[start:] = np.maximum(nearest[start:], cosines.max(axis=0))
        near = np.argwhere(cosines >= threshold) + start
        if len(near):
            # The nodes of this graph are the groups so far.
            edges = coo_array((np.ones(len(near), bool), groups[near].T), shape=(n, n))
            groups = connected_components(edges, directed=False)[1][groups]
    return groups, nearest
