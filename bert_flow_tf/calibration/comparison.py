"""Calibrations side by side: their figures, a recommendation, and the table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from bert_flow_tf.calibration.auto import LEFT_UNCHANGED
from bert_flow_tf.calibration.history import History
from bert_flow_tf.calibration.judgement import Judgement
from bert_flow_tf.common.json_files import Count
from bert_flow_tf.common.records import ModelRecord, Result
from bert_flow_tf.common.table import Entry, Table, number, x100
from bert_flow_tf.vectors.metrics import METRIC_NAMES

# Figures of the paper have this note beside another encoder.
NOT_COMPARABLE = "BERT-base, not comparable"


class Compared(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The figures of one calibration in a comparison.

    Attributes:
      spearman: on labelled pairs.
      auc, best_f1, precision_if_rare: for labels 0 and 1; `best_f1` with its cosine, see
        `judgement.BestF1`.
      change, interval: of the measure that decides, from no calibration; 95 %.
      disagreement: see `judgement.Judgement`; "" where the measures agree.
      witness, witness_claim, mean_cosine, threshold: on held-out sentences, see `Witness` and
        `Threshold`.
      cosine_counts: of the same sentences' pairs, see `vectors.isotropy.Isotropy`.
      verdict: by the pairs, else by the witness.
      choice: what `auto` chose.
    """

    method: str
    spearman: float | None = None
    change: float | None = None
    interval: tuple[float, float] | None = None
    auc: float | None = None
    best_f1: tuple[float, float] | None = None
    precision_if_rare: float | None = None
    disagreement: str = ""
    witness: float | None = None
    witness_claim: str | None = None
    mean_cosine: float | None = None
    threshold: float | None = None
    verdict: str | None = None
    choice: str = ""
    cosine_counts: list[int] = []


class Comparison(Result, frozen=True, kw_only=True, tag="comparison"):
    """A comparison: a sequence of rows, whose `str` is a table.

    Attributes:
      model: without a calibration; None for an encoder of another library.
      encoder: in words.
      task: whose splits were compared on; None for sentences of one's own.
      metric: the measure on pairs that decides, `spearman`, `auc` or `f1`.
      rows: the encoder without a calibration, "none", then each method.
      recommended: the method to take, or "none".
      reason: why, in words.
    """

    model: ModelRecord | None
    encoder: str
    sentences: Count
    pairs: Count
    task: str | None = None
    metric: str = "spearman"
    flow_model_config: str
    rows: list[Compared]
    recommended: str
    reason: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Compared]:
        return iter(self.rows)

    def __getitem__(self, row: int) -> Compared:
        return self.rows[row]

    def __str__(self) -> str:
        return comparison_table(self).to_text(missing="")


def figures_of(method: str, history: History, *, is_after: bool) -> Compared:
    """Return the figures before or after a calibration."""
    judged = history.judgement
    best = judged.best_f1[is_after] if judged and judged.best_f1 else None
    witness = history.witness
    change = history.change
    isotropy = None
    if change:
        isotropy = change.after if is_after else change.before
    return Compared(
        method=method,
        spearman=_on_pairs(judged, "spearman", is_after=is_after),
        auc=_on_pairs(judged, "auc", is_after=is_after),
        best_f1=(best.f1, best.cosine) if best else None,
        precision_if_rare=best.precision_if_rare if best else None,
        change=judged.decided.change if judged and is_after else None,
        interval=(judged.decided.low, judged.decided.high) if judged and is_after else None,
        disagreement=judged.disagreement if judged and is_after else "",
        witness=(witness.after if is_after else witness.before) if witness else None,
        witness_claim=witness.claim if witness and is_after else None,
        mean_cosine=isotropy.mean_cosine if isotropy else None,
        threshold=history.thresholds[is_after].cosine if history.thresholds else None,
        verdict=history.verdict.claim if is_after and history.verdict else None,
        choice=history.choice if is_after else "",
        cosine_counts=isotropy.cosine_counts if isotropy else [],
    )


def _on_pairs(judged: Judgement | None, name: str, *, is_after: bool) -> float | None:
    measured = judged.measures.get(name) if judged else None
    if measured is None:
        return None
    return measured.after if is_after else measured.before


# A gain that the intervals exclude from here on would matter to nobody.
_MATTERS = 0.01


class Recommendation(NamedTuple):
    """A method, or "none", and the reason in words."""

    method: str
    reason: str


def recommend(rows: Sequence[Compared], pairs: int, metric: str = "spearman") -> Recommendation:
    """Return the method to take.

    Labelled pairs decide: the best of the methods whose verdict is "helps". If the interval of
    none of them lies above zero, but one reaches a gain of a point, the pairs do not tell; then,
    and without pairs, `auto` decides, or the witness where `auto` was not compared.
    """
    _, *methods = rows
    if pairs:
        measure = METRIC_NAMES[metric]
        helping = [row for row in methods if row.verdict == "helps"]
        if helping:
            best = max(helping, key=lambda row: row.change or 0.0)
            words = "by the labelled pairs"
            return Recommendation(best.method, _with_disagreement(words, best))
        best = max(methods, key=lambda row: row.change or 0.0)
        if not best.change or best.interval is None or best.interval[1] < _MATTERS:
            return Recommendation("none", "by the labelled pairs")
        low, high = (100 * bound for bound in best.interval)
        found = (
            f"{best.method}: {measure} {100 * best.change:+.2f}, 95 %: {low:+.2f} to {high:+.2f}"
        )
        words = f"{pairs:,} labelled pairs are too few to tell ({found})"
        return Recommendation(_by_auto(methods) or "none", words)
    chosen = _by_auto(methods)
    if chosen or all(row.witness is None for row in methods):
        return Recommendation(chosen or "none", "without labelled pairs")
    claimed = [row for row in methods if row.witness_claim == "helps"]
    best_claimed = max(claimed, key=lambda row: row.witness or 0.0, default=None)
    return Recommendation(best_claimed.method if best_claimed else "none", "by the witness")


def _by_auto(rows: Sequence[Compared]) -> str | None:
    """Return auto's name, "none" if it left all unchanged, or None."""
    # A dict of methods may give it another name; no other method has a choice.
    auto = next((row for row in rows if row.choice or row.method == "auto"), None)
    if auto is None:
        return None
    is_worse = auto.change is not None and auto.change < 0
    return "none" if is_worse or auto.choice.startswith(LEFT_UNCHANGED) else auto.method


def _with_disagreement(words: str, row: Compared) -> str:
    return f"{words}; {row.disagreement}" if row.disagreement else words


def comparison_table(result: Comparison, published: Mapping[str, float] | None = None) -> Table:
    """Return a table of calibrations, and a last line that recommends one.

    Args:
      published: the figures of the paper's Table 5 by method, to show beside these.
    """
    published = published or {}
    columns = [
        "method",
        METRIC_NAMES["spearman"],
        "change" if result.metric == "spearman" else f"change of {METRIC_NAMES[result.metric]}",
        METRIC_NAMES["auc"],
        METRIC_NAMES["f1"],
        "precision at 1 in 1,000",
        "witness",
        "without labels",
        "mean cosine",
        "cosine of 1 in 1,000",
        "Table 5",
    ]
    before = result.rows[0].spearman
    rows = [_cells(row, before, published.get(row.method)) for row in result.rows]
    title = f"{result.encoder}: {result.sentences:,} sentences, {result.pairs:,} labelled pairs"
    return Table(columns, rows, title, _notes(result, published))


def _cells(row: Compared, before: float | None, published: float | None) -> list[Entry]:
    interval = ""
    bounds: dict[str, float] = {}
    change = row.change
    if row.interval:
        low, high = (100 * bound for bound in row.interval)
        interval = f"95 %: {low:+.2f} to {high:+.2f}"
        bounds = {"low": low, "high": high}
    if row.interval and change is None and row.spearman and before:
        # Records of the first versions have no change; their intervals are Spearman's.
        change = row.spearman - before
    f1, cut = row.best_f1 or (None, None)
    return [
        row.method,
        x100(row.spearman),
        number(None if change is None else 100 * change, sign="+", note=interval, parts=bounds),
        x100(row.auc),
        number(
            None if f1 is None else 100 * f1,
            note="" if cut is None else f"at cosine {cut:.2f}",
            parts={} if cut is None else {"cosine": cut},
        ),
        x100(row.precision_if_rare),
        x100(row.witness),
        row.witness_claim,
        number(row.mean_cosine, 3),
        number(row.threshold, 3),
        number(published),
    ]


def _notes(result: Comparison, published: Mapping[str, float]) -> list[str]:
    notes = [f"{row.method}: {row.choice}" for row in result.rows if row.choice]
    if published:
        notes.append(f"Table 5: {NOT_COMPARABLE}.")
    if any(row.precision_if_rare is not None for row in result.rows):
        notes.append(
            "The best F1's cosine belongs to the share of equal pairs among these; \"precision at "
            '1 in 1,000" is its precision where one in 1,000 pairs is equal.'
        )
    by = result.reason or ("by the labelled pairs" if result.pairs else "by the witness")
    notes.append(f"recommended, {by}: {result.recommended}")
    return notes
