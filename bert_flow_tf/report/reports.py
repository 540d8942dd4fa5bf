"""Tables of results for commands and reports."""

import dataclasses
import importlib.resources
import json
import pathlib
from collections.abc import Iterator, Sequence

from bert_flow_tf.calibration.comparison import Comparison, comparison_table
from bert_flow_tf.common.records import EncoderRecord
from bert_flow_tf.common.table import Entry, Table, number, x100
from bert_flow_tf.report.analyses import Analyses, analyses_tables
from bert_flow_tf.report.collected import Source, Verification
from bert_flow_tf.report.paper import fine_tuning_of, is_whole, table5
from bert_flow_tf.report.rows import ScoreRow, score_rows, summarize
from bert_flow_tf.report.verdict import verdict, verdict_table
from bert_flow_tf.tasks.scored_tasks import task_title
from bert_flow_tf.tasks.scores import (
    WHY_FLOW,
    IsotropyResults,
    Scores,
    encoder_words,
    falls,
    isotropy_table,
    learning_in_words,
)
from bert_flow_tf.vectors.metrics import METRIC_NAMES
from glow.config import DEFAULT_CONFIG, GlowConfig

_PROTOCOLS = (
    "wmean: mean over sub-sets, weighted by their pairs (the paper); all pairs: one "
    "correlation (later ones)."
)
_COMPARED = (
    "paper: the row of Tables 2 to 4 (for a flow on train only, the original's README) with the "
    "same encoder, training "
    "and protocol; TF1 code: the mean of the original's runs on the same weights, pooling and flow."
)

PUBLISHED_COLUMNS = ("paper", "Table 8", "TF1 code")
_SCORE_COLUMNS = (
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
    "F1",
    "without flow",
    "change",
    *PUBLISHED_COLUMNS,
)


def scores_table(result: Scores, *, explain_paper: bool = False, named: bool = False) -> Table:
    """Return `rows_table` of one result's scores.

    Args:
      explain_paper: True to add a note if no score can stand beside the paper's.
      named: True to show the rows' names, which one model alone does not need.
    """
    rows = score_rows([Source(pathlib.Path(), result)])
    if not named:
        rows = [dataclasses.replace(row, name="") for row in rows]
    return with_paper_note(rows_table(rows), rows) if explain_paper else rows_table(rows)


def with_paper_note(table: Table, rows: Sequence[ScoreRow]) -> Table:
    """Add a note that says why the paper's column is missing."""
    if any(row.published.paper is not None for row in rows):
        return table
    unmet = dict.fromkeys(one for row in rows for one in row.unmet)
    note = f"No column of the paper: needs {'; '.join(unmet) or 'a row of its tables'}."
    return dataclasses.replace(table, notes=[*table.notes, note])


def rows_table(rows: Sequence[ScoreRow]) -> Table:
    """Return a table of scores beside their baselines and published scores.

    Scores are times 100; several seeds give their mean ± deviation (over n - 1). A note explains
    a flow that lowers a score by more than 0.5.
    """
    cells = [_score_cells(row) for row in rows]
    any_falls = any(falls(_change(row)) for row in rows)
    lengths = sorted({row.model.max_seq_length for row in rows})
    title = [
        f"{' or '.join(map(str, lengths))} word pieces",
        *(learning_in_words(row.model.flow) for row in rows),
    ]
    notes = [
        *([_PROTOCOLS] if any(row.protocol for row in rows) else ()),
        *(WHY_FLOW if any_falls else ()),
    ]
    return Table(_SCORE_COLUMNS, cells, ", ".join(dict.fromkeys(filter(None, title))), notes)


def _score_cells(row: ScoreRow) -> list[Entry]:
    """Return a row's cells, one per name of `_SCORE_COLUMNS`."""
    summary = summarize(row.values_x100)
    count = len(row.values_x100)
    several = count > 1
    note = f"median {summary.median:.2f}, n = {count}" if several else ""
    parts = {"median": summary.median, "n": count} if several else {}
    return [
        row.name,
        _embedding(row),
        encoder_in_words(row.model.encoder),
        row.task,
        row.split,
        f"{METRIC_NAMES[row.metric]} {row.protocol or ''}".strip(),
        number(row.pairs, 0, note="" if row.unit == "pairs" else row.unit),
        number(summary.mean, spread=summary.std, note=note, parts=parts),
        number(row.all_pairs_x100),
        x100(row.pearson),
        x100(row.f1),
        number(row.baseline.mean_x100 if row.baseline else None),
        number(_change(row), sign="+"),
        *_published_cells(row),
    ]


def _published_cells(row: ScoreRow) -> list[Entry]:
    """Return the paper's score, Table 8's, and the TF1 code's."""
    published = row.published
    paper: Entry = None
    if published.paper is not None:
        row_name = published.row or ""
        paper = number(published.paper, note=row_name, parts={"row": row_name})
    seeds: Entry = None
    if published.seeds and len(row.values_x100) > 1:
        seeds = number(published.seeds["mean"], spread=published.seeds["std"])
    runs = len(published.original)
    original = summarize(published.original).mean if runs else None
    counted = {"runs": runs} if runs else {}
    return [paper, seeds, number(original, note=f"{runs} runs" if runs > 1 else "", parts=counted)]


def _change(row: ScoreRow) -> float | None:
    """Return the difference from the score without a flow, if any."""
    return row.mean_x100 - row.baseline.mean_x100 if row.baseline else None


@dataclasses.dataclass(frozen=True)
class Report:
    """The tables of results.

    Attributes:
      rows: what the table of scores shows.
      others: a comparison or measures of isotropy each.
      verdict: None if the results decide no claim.
    """

    rows: Sequence[ScoreRow]
    scores: Table | None
    others: Sequence[Table]
    verdict: Table | None

    @property
    def tables(self) -> list[Table]:
        """Scores, other results, then the verdict."""
        return [table for table in (self.scores, *self.others, self.verdict) if table]


def report_of(sources: Sequence[Source]) -> Report:
    """Return the tables of all results."""
    rows = score_rows(sources)
    verifications = [one.result for one in sources if isinstance(one.result, Verification)]
    claims = verdict(verifications, rows)
    return Report(
        rows=rows,
        scores=_explained_scores(rows) if rows else None,
        others=list(_other_tables(sources)),
        verdict=verdict_table(claims) if claims else None,
    )


def _explained_scores(rows: Sequence[ScoreRow]) -> Table:
    """Return the rows' table, with notes on its columns."""
    table = with_paper_note(rows_table(rows), rows)
    if {"paper", "TF1 code"}.isdisjoint(table.columns):
        return table
    return dataclasses.replace(table, notes=[_COMPARED, *table.notes])


def _other_tables(sources: Sequence[Source]) -> Iterator[Table]:
    for source in sources:
        if isinstance(source.result, Comparison):
            table = comparison_table(source.result, _table5(source.result))
        elif isinstance(source.result, IsotropyResults):
            table = isotropy_table(source.result)
        elif isinstance(source.result, Analyses):
            yield from (_labelled(one, source) for one in analyses_tables(source.result))
            continue
        else:
            continue
        yield _labelled(table, source)


def _labelled(table: Table, source: Source) -> Table:
    return dataclasses.replace(table, title=f"{source.path}: {table.title}".rstrip(": "))


def _table5(result: Comparison) -> dict[str, float]:
    """Return Table 5's figures by method; none for other pairs or poolings."""
    task = task_title(result.task or "")
    has_pairs = is_whole(task, "test", result.pairs)
    model = result.model
    if not has_pairs or model is None or model.pooling != "avg" or model.truncate_dim is not None:
        return {}
    rows = {one.method: table5(one.method, task, result.flow_model_config) for one in result.rows}
    return {method: row[1] for method, row in rows.items() if row}


def literature_table() -> Table:
    """Return what later papers report for the flow and for whitening."""
    text = (
        importlib.resources.files("bert_flow_tf.report")
        .joinpath("literature.json")
        .read_text("utf-8")
    )
    found = json.loads(text)
    rows = list[list[Entry]]()
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


def encoder_in_words(encoder: EncoderRecord) -> str:
    """Return an encoder's name, or its handle's end, and its fine-tuning."""
    return encoder_words(encoder, fine_tuning_of(encoder))


def _differences(config: GlowConfig) -> str:
    """Return the keys in which a configuration differs from the default."""
    default = GlowConfig.load(DEFAULT_CONFIG).to_dict()
    values = config.to_dict()
    values |= values.pop("own", {})
    found = [f"{key}={value}" for key, value in values.items() if value != default.get(key)]
    return ", ".join(found)


def _embedding(row: ScoreRow) -> str:
    flow = row.model.flow
    if flow is None:
        return row.model.pooling
    notes = (
        []
        if flow.config is None or flow.name == DEFAULT_CONFIG
        else [flow.name or _differences(flow.config)]
    )
    splits = ", train" if flow.training.settings.get("use_full_for_training") == 0 else ""
    notes += [f"learned on {task_title(flow.training.task)}{splits}"] if flow.training.task else []
    notes += (
        [f"seed{'s' if len(row.seeds) > 1 else ''} {', '.join(map(str, row.seeds))}"]
        if row.seeds
        else []
    )
    return f"{row.model.pooling} + {flow.method}" + (f" ({'; '.join(notes)})" if notes else "")
