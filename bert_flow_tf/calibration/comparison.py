"""Calibrations side by side: their figures, a recommendation, and the table."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bert_flow_tf.calibration.auto import LEFT_UNCHANGED
from bert_flow_tf.calibration.history import History
from bert_flow_tf.calibration.methods import NONE, Method
from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.common.errors import UserError, warn_user
from bert_flow_tf.common.json_files import Count
from bert_flow_tf.common.records import ModelRecord, Result
from bert_flow_tf.common.table import Entry, Table, number, x100
from bert_flow_tf.vectors.metrics import METRIC_NAMES

if TYPE_CHECKING:
    from bert_flow_tf.calibration.learning import Measuring

# Figures of the paper have this note beside another encoder.
NOT_COMPARABLE = "BERT-base, not comparable"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A method in a comparison, and the history of its `fit`.

    The row "none" is the encoder as it is, before and after.
    """

    method: str
    history: History


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
    rows: list[Row]
    recommended: str
    reason: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __getitem__(self, row: int) -> Row:
        return self.rows[row]

    def __str__(self) -> str:
        return comparison_table(self).to_text(missing="")


def learn_all(
    texts: Sequence[str],
    methods: Sequence[Method],
    settings: FitSettings,
    measuring: "Measuring",
    *,
    show_progress_bar: bool | None = None,
) -> list[Row]:
    """Learn several methods on the same sentences; return their histories.

    Each list of sentences is encoded once. The first row is the encoder as it is. A method that
    fails, such as whitening of few sentences, is left out with a warning.
    """
    # Commands that only read a comparison do not load TensorFlow.
    from bert_flow_tf.calibration.learning import learn

    settings.check_used(methods)
    cached = functools.cache(lambda some, label: measuring.encode(list(some), label=label))
    once = dataclasses.replace(measuring, encode=lambda some, label: cached(tuple(some), label))
    rows: list[Row] = []
    problems: dict[str, UserError] = {}
    none = dataclasses.replace(NONE, has_witness=any(method.has_witness for method in methods))
    for method in (none, *methods):
        try:
            used = settings.used_by(method)
            fitted = learn(texts, method, used, once, show_progress_bar=show_progress_bar)
            rows.append(Row(method=method.label, history=fitted.history))
        except UserError as error:
            problems[method.label] = error
    if len(rows) < 2:
        raise next(iter(problems.values()))
    for name, problem in problems.items():
        warn_user(f"compare: {name} is left out: {problem}")
    return rows


# A gain that the intervals exclude from here on would matter to nobody.
_MATTERS = 0.01


class Recommendation(NamedTuple):
    """A method, or "none", and the reason in words."""

    method: str
    reason: str


def recommend(rows: Sequence[Row], pairs: int, metric: str = "spearman") -> Recommendation:
    """Return the method to take.

    Labelled pairs decide: the best of the methods whose verdict is "helps". If the interval of
    none of them lies above zero, but one reaches a gain of a point, the pairs do not tell; then,
    and without pairs, `auto` decides, or the witness where `auto` was not compared.
    """
    _, *methods = rows
    if pairs:
        helping = [row for row in methods if row.history.claim == "helps"]
        if helping:
            best = max(helping, key=_change)
            words = "by the labelled pairs"
            return Recommendation(best.method, _with_disagreement(words, best))
        best = max(methods, key=_change)
        judged = best.history.judgement
        if judged is None or not _change(best) or judged.decided.high < _MATTERS:
            return Recommendation("none", "by the labelled pairs")
        gain = f"{METRIC_NAMES[metric]} {100 * judged.decided.change:+.2f}"
        found = f"{best.method}: {gain}, {judged.decided.interval}"
        words = f"{pairs:,} labelled pairs are too few to tell ({found})"
        return Recommendation(_by_auto(methods) or "none", words)
    chosen = _by_auto(methods)
    if chosen or all(row.history.witness is None for row in methods):
        return Recommendation(chosen or "none", "without labelled pairs")
    claimed = {
        row.method: row.history.witness.after
        for row in methods
        if row.history.witness and row.history.witness.claim == "helps"
    }
    best_claimed = max(claimed, key=lambda method: claimed[method], default="none")
    return Recommendation(best_claimed, "by the witness")


def _change(row: Row) -> float:
    """Return the change of the measure that decides; 0 without pairs."""
    judged = row.history.judgement
    return judged.decided.change if judged else 0.0


def _by_auto(rows: Sequence[Row]) -> str | None:
    """Return auto's name, "none" if it left all unchanged, or None."""
    # A dict of methods may give it another name; no other method has a choice.
    auto = next((row for row in rows if row.history.choice or row.method == "auto"), None)
    if auto is None:
        return None
    is_unchanged = auto.history.choice.startswith(LEFT_UNCHANGED)
    return "none" if _change(auto) < 0 or is_unchanged else auto.method


def _with_disagreement(words: str, row: Row) -> str:
    judged = row.history.judgement
    return f"{words}; {judged.disagreement}" if judged and judged.disagreement else words


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
    rows = [_cells(row, published.get(row.method)) for row in result.rows]
    title = f"{result.encoder}: {result.sentences:,} sentences, {result.pairs:,} labelled pairs"
    return Table(columns, rows, title, _notes(result, published))


def _cells(row: Row, published: float | None) -> list[Entry]:
    history = row.history
    change = history.change
    thresholds = history.thresholds
    return [
        row.method,
        *_on_pairs(row),
        x100(history.witness.after if history.witness else None),
        history.witness.claim if history.witness and row.method != NONE.label else None,
        number(change.after.mean_cosine if change else None, 3),
        number(thresholds[1].cosine if thresholds else None, 3),
        number(published),
    ]


def _on_pairs(row: Row) -> list[Entry]:
    """Return the cells of the measures on labelled pairs."""
    judged = row.history.judgement
    if judged is None:
        return [x100(None), number(None), x100(None), number(None), x100(None)]
    change = number(None)
    if row.method != NONE.label:
        decided = judged.decided
        bounds = {"low": 100 * decided.low, "high": 100 * decided.high}
        change = number(100 * decided.change, sign="+", note=decided.interval, parts=bounds)
    auc = judged.measures.get("auc")
    best = judged.best_f1[1] if judged.best_f1 else None
    return [
        x100(judged.measures["spearman"].after),
        change,
        x100(auc.after if auc else None),
        number(
            100 * best.f1 if best else None,
            note=f"at cosine {best.cosine:.2f}" if best else "",
            parts={"cosine": best.cosine} if best else {},
        ),
        x100(best.precision_if_rare if best else None),
    ]


def _notes(result: Comparison, published: Mapping[str, float]) -> list[str]:
    histories = [(row.method, row.history) for row in result.rows]
    notes = [f"{method}: {history.choice}" for method, history in histories if history.choice]
    if published:
        notes.append(f"Table 5: {NOT_COMPARABLE}.")
    if any(history.judgement and history.judgement.best_f1 for _, history in histories):
        notes.append(
            "The best F1's cosine belongs to the share of equal pairs among these; \"precision at "
            '1 in 1,000" is its precision where one in 1,000 pairs is equal.'
        )
    by = result.reason or ("by the labelled pairs" if result.pairs else "by the witness")
    notes.append(f"recommended, {by}: {result.recommended}")
    return notes
