"""Rows of result tables, with baselines and published scores."""

import dataclasses
import statistics
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from bert_flow_tf.common.records import ModelRecord, Result
from bert_flow_tf.report.collected import Predictions, Reproduction, Source, summarize
from bert_flow_tf.report.paper import (
    Published,
    has_papers_shape,
    is_whole,
    published_figures,
    unmet_conditions,
)
from bert_flow_tf.tasks.protocols import TaskScores
from bert_flow_tf.tasks.scored_tasks import task_title
from bert_flow_tf.tasks.scores import Scores


@dataclasses.dataclass(frozen=True)
class ScoreRow:
    """The score of one model, for one or several seeds.

    `model` is the first seed's; `baseline` is the row of the same embeddings before the flow.
    """

    name: str
    model: ModelRecord
    seeds: Sequence[int]  # empty if nothing is random
    task: str  # the paper's title
    split: str
    metric: str
    protocol: str | None  # "wmean" for a task of several sets; None for one set
    pairs: int
    values_x100: Sequence[float]  # one per seed
    published: Published
    # mean over seeds of the score of several sets' pairs together
    all_pairs_x100: float | None = None
    pearson: float | None = None  # mean over seeds
    f1: float | None = None  # mean over seeds, of a classifier of pairs
    baseline: "ScoreRow | None" = None
    unmet: Sequence[str] = ()  # what a comparison with the paper lacks

    @property
    def unit(self) -> str:
        """The word for what is counted: "pairs" or "sentences"."""
        return "sentences" if self.metric == "accuracy" and self.f1 is None else "pairs"

    @property
    def key(self) -> tuple[str, str, str, str | None, int]:
        """The pairs and the metric; rows of equal keys are comparable."""
        return self.task, self.split, self.metric, self.protocol, self.pairs

    @property
    def mean_x100(self) -> float:
        return summarize(self.values_x100).mean


def score_rows(sources: Iterable[Source]) -> list[ScoreRow]:
    """Return the rows of all sources with their baselines.

    A row replaces an earlier row of the same name and key.
    """
    rows = {
        (row.name, row.key): row
        for source in sources
        for row in _rows_of(source.result, source.label)
    }.values()
    return [dataclasses.replace(row, baseline=_baseline(row, rows) or row.baseline) for row in rows]


def _rows_of(result: Result, label: str) -> Iterator[ScoreRow]:
    if isinstance(result, Reproduction):
        for rows in result.tasks.values():
            for name, runs in rows.items():
                scored = [(run.model, run.scores) for run in runs]
                yield _task_row(scored, f"{label}, {name}" if label else name)
    elif isinstance(result, Predictions):
        if result.scores is not None:
            yield _task_row([(result.model, result.scores)], label)
    elif isinstance(result, Scores):
        plain = msgspec.structs.replace(result.model, flow=None)
        before = f"{label}, before the flow"
        pooled = (result.without_flow or {}).values()
        baselines = {
            row.key: row for row in (_task_row([(plain, task)], before) for task in pooled)
        }
        for task in result.tasks.values():
            row = _task_row([(result.model, task)], label)
            yield dataclasses.replace(row, baseline=baselines.get(row.key))


def _task_row(runs: Sequence[tuple[ModelRecord, TaskScores]], name: str) -> ScoreRow:
    """Return the row of a task; `runs` has an item per seed."""
    model, first = runs[0]
    task = task_title(first.title)
    protocol = "wmean" if len(first.by_protocol) > 1 else "all"
    published = Published()
    if has_papers_shape(model) and is_whole(task, first.split, first.pairs):
        published = published_figures(task, first.split, model.pooling, model.flow, model.encoder)
    pearson = [
        scores.by_metric["pearson"][protocol] for _, scores in runs if "pearson" in scores.by_metric
    ]
    f1 = [scores.by_metric["f1"][protocol] for _, scores in runs if "f1" in scores.by_metric]
    pooled = [100 * scores.by_protocol["all"] for _, scores in runs if protocol != "all"]
    return ScoreRow(
        name=name,
        model=model,
        seeds=[
            one.training.seed for one, _ in runs if one.training and one.training.seed is not None
        ],
        task=task,
        split=first.split,
        metric=first.metric,
        protocol=None if protocol == "all" else protocol,
        pairs=first.pairs,
        values_x100=[100 * scores.by_protocol[protocol] for _, scores in runs],
        all_pairs_x100=statistics.fmean(pooled) if pooled else None,
        pearson=statistics.fmean(pearson) if pearson else None,
        f1=statistics.fmean(f1) if f1 else None,
        published=published,
        unmet=unmet_conditions(task, first.split, first.pairs, model),
    )


def _baseline(row: ScoreRow, rows: Iterable[ScoreRow]) -> ScoreRow | None:
    """Return the row, if any, of the same embeddings without a flow."""

    def embedding(one: ScoreRow) -> tuple:
        # A run's fine-tuned encoder depends on its seed.
        seeds = (
            () if one.model.encoder.fine_tuning is None or len(one.seeds) == 1 else tuple(one.seeds)
        )
        return (
            one.key,
            one.model.pooling,
            one.model.max_seq_length,
            max(one.model.low_dim, 0),
            one.model.truncate_dim,
            seeds,
        )

    def digests(one: ScoreRow) -> set:
        # A run's trained encoder gets a fingerprint only when it is converted.
        return {one.model.encoder.fingerprint, one.model.encoder.weights} - {None}

    plain = (
        one
        for one in rows
        if row.model.flow and not one.model.flow and embedding(one) == embedding(row)
    )
    return next((one for one in plain if digests(one) & digests(row)), None)
