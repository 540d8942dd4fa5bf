"""Tables of results for commands and reports."""

import dataclasses
import importlib.resources
import json
import pathlib
from collections.abc import Callable, Iterator, Sequence

from bert_flow_tf.data.scored_tasks import task_title
from bert_flow_tf.results.paper import fine_tuning_of, is_whole, table5
from bert_flow_tf.results.records import (
    Comparison,
    IsotropyResults,
    Source,
    Verification,
    summarize,
)
from bert_flow_tf.results.rows import ScoreRow, score_rows
from bert_flow_tf.results.table import (
    METRIC_NAMES,
    NOT_COMPARABLE,
    WHY_FLOW,
    Entry,
    Table,
    fall,
    number,
    x100,
)
from bert_flow_tf.results.verdict import verdict, verdict_table
from bert_flow_tf.runs.record import Encoder, Flow, Model, Result
from glow.config import DEFAULT_CONFIG

_PROTOCOLS = (
    "wmean: mean over sub-sets, weighted by their pairs (the paper); all pairs: one "
    "correlation (later ones)."
)
_COMPARED = (
    "paper: the row of Tables 2 to 4 (for a flow on train only, the original's README) with the "
    "same encoder, training "
    "and protocol; TF1 code: the mean of the original's runs on the same weights, pooling and flow."
)
# Each measure of `evaluation.isotropy.Isotropy` has this many decimals.
_ISOTROPY = {
    "constant_channels": 0,
    "mean_cosine": 4,
    "mean_share": 4,
    "top_share": 4,
    "centred_top_share": 4,
}
_ISOTROPY |= {"participation_ratio": 1, "effective_rank": 1, "partition_ratio": 4}


def scores_table(result: Result) -> Table:
    """Return `rows_table` of one result's scores."""
    return rows_table(score_rows([Source("", pathlib.Path(), result)]))


def rows_table(rows: Sequence[ScoreRow]) -> Table:
    """Return a table of scores beside their baselines and published scores.

    Scores are times 100; several seeds give their mean ± deviation (over n - 1). A note marks a
    flow that lowers a score by more than 0.5.
    """
    cells, falls = [], False
    for row in rows:
        summary, published, plain = summarize(row.values_x100), row.published, row.baseline
        median = (
            f"median {summary.median:.2f}, n = {len(row.values_x100)}"
            if len(row.values_x100) > 1
            else ""
        )
        base, change = (plain.mean_x100, row.mean_x100 - plain.mean_x100) if plain else (None, None)
        falls = falls or bool(fall(change))
        one: list[Entry] = [
            row.name,
            _embedding(row),
            encoder_in_words(row.model.encoder),
            row.task,
            row.split,
        ]
        one += [f"{METRIC_NAMES[row.metric]} {row.protocol or ''}".strip(), number(row.pairs, 0)]
        one += [
            number(summary.mean, spread=summary.std, note=median),
            number(row.all_pairs_x100),
            x100(row.pearson),
        ]
        one += [number(base), number(change, sign="+", note=fall(change))]
        one += [
            number(published.paper, note=published.row or "")
            if published.paper is not None
            else None
        ]
        one += [
            number(published.seeds["mean"], spread=published.seeds["std"])
            if published.seeds and median
            else None
        ]
        runs, original = (
            len(published.original),
            published.original and summarize(published.original).mean,
        )
        cells.append([*one, number(original or None, note=f"{runs} runs" if runs > 1 else "")])
    columns = [
        "name",
        "embedding",
        "encoder",
        "task",
        "split",
        "metric",
        "pairs",
        "x100",
        "all pairs",
        "Pearson",
    ]
    columns += ["without flow", "change", "paper", "Table 8", "TF1 code"]
    lengths = sorted({row.model.max_seq_length for row in rows})
    title = [
        f"{' or '.join(map(str, lengths))} word pieces",
        *(_learning(row.model.flow) for row in rows),
    ]
    notes = [
        *([_PROTOCOLS] if any(row.protocol for row in rows) else ()),
        *(WHY_FLOW if falls else ()),
    ]
    return Table(columns, cells, ", ".join(dict.fromkeys(filter(None, title))), notes)


def comparison_table(result: Comparison) -> Table:
    """Return a table of calibrations, and a last line that recommends one.

    The interval is that of the change from "none". The paper's Table 5 is shown for a whole task.
    """
    rows, task, notes = [], task_title(result.task or ""), list[str]()
    before = result.rows[0].spearman
    is_paper_task = (
        is_whole(task, "test", result.pairs)
        and result.model is not None
        and result.model.pooling == "avg"
    )
    for row in result.rows:
        change = None if row.spearman is None or before is None else 100 * (row.spearman - before)
        interval = (
            row.interval and f"95 %: {100 * row.interval[0]:+.2f} to {100 * row.interval[1]:+.2f}"
        )
        theirs = table5(row.method, task, result.flow_model_config) if is_paper_task else None
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
            number(theirs and theirs[1]),
        ]
        rows.append(cells)
        notes = [f"Table 5: {NOT_COMPARABLE}."] if theirs else notes
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


def isotropy_table(result: IsotropyResults) -> Table:
    """Return a table of measures, then bits per dimension of each density."""
    measures = result.measures | {"standard normal": result.reference}
    rows: list[list[Entry]] = []
    for key, digits in _ISOTROPY.items():
        rows.append(
            [
                key.replace("_", " "),
                *(number(getattr(one, key), digits) for one in measures.values()),
            ]
        )
    blanks = [None] * (len(measures) - 1)
    rows += [
        [f"bits per dimension, {name}", number(bits, 4), *blanks]
        for name, bits in result.bits_per_dim.items()
    ]
    return Table(("measure", *measures), rows)


def report_tables(sources: Sequence[Source]) -> Iterator[Table]:
    """Yield the verdict, the scores and other results, if any."""
    rows = score_rows(sources)
    if claims := verdict(
        [one.result for one in sources if isinstance(one.result, Verification)], rows
    ):
        yield verdict_table(claims)
    if rows:
        yield dataclasses.replace(table := rows_table(rows), notes=[_COMPARED, *table.notes])
    makers: dict[type, Callable[..., Table]] = {
        Comparison: comparison_table,
        IsotropyResults: isotropy_table,
    }
    for source in sources:
        if make := makers.get(type(source.result)):
            table = make(source.result)
            yield dataclasses.replace(table, title=f"{source.label}: {table.title}".rstrip(": "))


def literature_table() -> Table:
    """Return what later papers report for the flow and for whitening."""
    text = (
        importlib.resources.files("bert_flow_tf.results")
        .joinpath("literature.json")
        .read_text("utf-8")
    )
    found, rows = json.loads(text), list[list[Entry]]()
    tasks = list(dict.fromkeys(task for row in found["rows"] for task in row["spearman_x100"]))
    about = ("method", "encoder", "learned_on", "pooling", "aggregation")
    for row in found["rows"]:
        scores = (row["spearman_x100"].get(task) for task in tasks)
        rows.append(
            [
                *(row[name] for name in about),
                *map(number, scores),
                number(row.get("average")),
                row["source"],
            ]
        )
    columns = (*(name.replace("_", " ") for name in about), *tasks, "average", "source")
    notes = [f"Why they differ: {why}." for why in found["why_they_disagree"]]
    return Table(columns, rows, "Spearman x100 in later papers", notes)


def model_in_words(model: Model) -> str:
    """Return encoder, pooling, length and the flow's training, for a title."""
    words = [encoder_in_words(model.encoder), model.pooling, f"{model.max_seq_length} word pieces"]
    return ", ".join(filter(None, [*words, _learning(model.flow)]))


def _learning(flow: Flow | None) -> str:
    """Say whether the flow learned with dropout; return "" without a record."""
    settings = flow.training.settings if flow else {}
    # Only `BertFlow.fit` records held-out sentences, and it uses no dropout.
    without = settings.get("cache_embeddings") or "held_out" in settings
    return f"flow learned with{'out' if without else ''} dropout" if settings else ""


def encoder_in_words(encoder: Encoder) -> str:
    """Return an encoder's name, or its handle's end, and its fine-tuning."""
    tuned, words = (
        fine_tuning_of(encoder),
        encoder.name or encoder.handle.rstrip("/").rpartition("/")[2],
    )
    return f"{words}, fine-tuned: {tuned} ({(encoder.fingerprint or '')[:8]})" if tuned else words


def _embedding(row: ScoreRow) -> str:
    flow = row.model.flow
    if flow is None:
        return row.model.pooling
    notes = (
        []
        if flow.config is None or flow.name == DEFAULT_CONFIG
        else [flow.name or "other configuration"]
    )
    splits = ", train" if flow.training.settings.get("use_full_for_training") == 0 else ""
    notes += [f"learned on {task_title(flow.training.task)}{splits}"] if flow.training.task else []
    notes += (
        [f"seed{'s' if len(row.seeds) > 1 else ''} {', '.join(map(str, row.seeds))}"]
        if row.seeds
        else []
    )
    return f"{row.model.pooling} + {flow.method}" + (f" ({'; '.join(notes)})" if notes else "")
