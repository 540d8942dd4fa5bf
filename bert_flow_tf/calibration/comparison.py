"""Calibrations side by side: the record and its table."""

from collections.abc import Mapping

from bert_flow_tf.calibration.witness import Compared
from bert_flow_tf.files.json_files import Count
from bert_flow_tf.records import ModelRecord, Result
from bert_flow_tf.table import METRIC_NAMES, NOT_COMPARABLE, Entry, Table, number, x100


class Comparison(Result, frozen=True, kw_only=True, tag="comparison"):
    """Results of `bert-flow compare`; `model` has no calibration."""

    model: ModelRecord | None  # None for an encoder of another library
    encoder: str
    sentences: Count
    pairs: Count
    task: str | None  # the task whose splits were compared on, or None for the user's own files
    flow_model_config: str
    rows: list[Compared]
    recommended: str


def comparison_table(result: Comparison, published: Mapping[str, float] | None = None) -> Table:
    """Return a table of calibrations, and a last line that recommends one.

    The interval is that of the change from "none".

    Args:
      published: the figures of the paper's Table 5 by method, to show beside these.
    """
    published = published or {}
    rows, notes = list[list[Entry]](), list[str]()
    before = result.rows[0].spearman
    for row in result.rows:
        change = None if row.spearman is None or before is None else 100 * (row.spearman - before)
        interval = (
            row.interval and f"95 %: {100 * row.interval[0]:+.2f} to {100 * row.interval[1]:+.2f}"
        )
        cut = row.best_f1 and f"at cosine {row.best_f1[1]:.2f}"
        cells: list[Entry] = [row.method, x100(row.spearman)]
        cells += [
            number(change if row.interval else None, sign="+", note=interval or ""),
            x100(row.auc),
        ]
        cells += [
            number(row.best_f1 and 100 * row.best_f1[0], note=cut or ""),
            x100(row.witness),
            row.witness_claim,
        ]
        cells += [
            number(row.mean_cosine, 3),
            number(row.threshold, 3),
            number(published.get(row.method)),
        ]
        rows.append(cells)
    if published:
        notes.append(f"Table 5: {NOT_COMPARABLE}.")
    by = "labelled pairs" if result.pairs else "witness"
    notes.append(f"recommended, by the {by}: {result.recommended}")
    columns = [
        "method",
        METRIC_NAMES["spearman"],
        "change",
        "AUC",
        "best F1",
        "witness",
        "without labels",
    ]
    title = f"{result.encoder}: {result.sentences:,} sentences, {result.pairs:,} labelled pairs"
    return Table([*columns, "mean cosine", "cosine of 1 in 1,000", "Table 5"], rows, title, notes)
