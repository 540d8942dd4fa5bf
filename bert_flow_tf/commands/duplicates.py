"""`bert-flow duplicates`: groups of rows that say nearly the same."""

import collections
import csv
from collections.abc import Sequence
from typing import Any

import click
import numpy as np

from bert_flow_tf.calibration import thresholds
from bert_flow_tf.commands import options as opt
from bert_flow_tf.commands.outputs import locked_file, say
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.atomic import new_file
from bert_flow_tf.files.sentence_files import BLOCK_ROWS, read_tables
from bert_flow_tf.scale.shards import input_files

# The cosines of 256 rows with all later ones are in memory at once.
_ROWS = 256


@click.command(
    epilog="\b\nbert-flow duplicates --model my_model --input tickets.csv --column text --keep id "
    "--out groups.csv"
)
@opt.model_options()
@opt.with_options(opt.INPUT_FILES)
@click.option("--keep", callback=opt.name_list(), metavar="NAMES", help="Columns to copy.")
@click.option(
    "--threshold", type=click.FloatRange(-1, 1), metavar="X", help="Least cosine of a pair."
)
@click.option(
    "--false_matches",
    type=click.FloatRange(0, 1, True, True),
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
    similar. FILE.csv has the columns group (from 1, the largest first), cosine (to the nearest
    other sentence; 1 for equal ones), the kept columns and the sentence. --false_matches bounds
    matches of unrelated sentences, not of those that differ in a detail.
    """
    if threshold is not None and false_matches is not None:
        raise click.UsageError(
            "found --threshold and --false_matches, expected at most one of them"
        )
    if not out.endswith(".csv"):
        raise UserError(f"--out={out}: found another ending, expected .csv")
    path = locked_file(out, overwrite=overwrite)
    files = input_files(inputs, file_format=input_format, keep=keep, **columns)
    sentences, kept = list[str](), list[tuple]()
    for file in files:
        for some, table in read_tables(**file._asdict(), rows=BLOCK_ROWS):
            sentences += some
            kept += zip(*table.to_pydict().values(), strict=True) if keep else [()] * len(some)
    different = {sentence: i for i, sentence in enumerate(dict.fromkeys(sentences))}
    if len(different) < 2:
        raise UserError(f"--input: found {len(different)} different sentences, expected 2 or more")
    share = false_matches or 1e-4
    if threshold is None:
        thresholds.check_enough(len(different), share)
    u = model.load().encode(list(different), normalize_embeddings=True)
    if threshold is None:
        found = thresholds.threshold(u, share)
        threshold = found.cosine
        click.echo(f"threshold: one in {1 / share:,.0f} random pairs exceeds a cosine of {found}")
    groups, nearest = similar_groups(u, threshold)
    rows = np.array([different[sentence] for sentence in sentences])
    members = collections.Counter(groups[rows].tolist())
    number = {group: i for i, (group, count) in enumerate(members.most_common(), 1) if count > 1}
    copies = np.bincount(rows, minlength=len(different)) > 1
    order = sorted(
        (i for i in range(len(rows)) if groups[rows[i]] in number),
        key=lambda i: number[groups[rows[i]]],
    )
    with new_file(path) as new, new.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["group", "cosine", *(keep or ()), columns["column"] or "sentence"])
        for i in order:
            cosine = 1.0 if copies[rows[i]] else nearest[rows[i]]
            writer.writerow([number[groups[rows[i]]], f"{cosine:.4f}", *kept[i], sentences[i]])
    equal = len(sentences) - len(different)
    say(
        f"groups written: {out} ({len(number):,} groups of {len(order):,} rows, {equal:,} rows "
        "repeat another)"
    )


def similar_groups(u: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the group and the largest cosine of each row.

    The rows `u` [n, D] have norm 1. Groups are connected by cosines of `threshold` or more. Memory
    is linear in n.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(u)
    groups, nearest = np.arange(n), np.full(n, -1.0, np.float32)
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
