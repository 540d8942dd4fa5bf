"""Rows of result tables, with baselines and published scores."""

import collections
import dataclasses
import pathlib
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from bert_flow_tf.common.records import ModelRecord, Result
from bert_flow_tf.report.collected import Source
from bert_flow_tf.report.paper import (
    Published,
    has_papers_shape,
    is_whole,
    published_figures,
    unmet_conditions,
)
from bert_flow_tf.tasks.protocols import TaskScores
from bert_flow_tf.tasks.scored_tasks import task_title
from bert_flow_tf.tasks.scores import ScoredRun, Scores, model_identity


class Summary(NamedTuple):
    """Statistics of a score over seeds; `std` divides by n - 1."""

    mean: float
    std: float | None
    median: float


def summarize(values: Sequence[float]) -> Summary:
    std = statistics.stdev(values) if len(values) > 1 else None
    return Summary(statistics.fmean(values), std, statistics.median(values))


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
    data: str = ""  # digest of the pairs and their gold scores
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
    def key(self) -> tuple[str, str, str, str | None, int, str]:
        """The pairs and the metric; rows of equal keys are comparable."""
        return self.task, self.split, self.metric, self.protocol, self.pairs, self.data

    @property
    def mean_x100(self) -> float:
        return summarize(self.values_x100).mean


class _Found(NamedTuple):
    """A row, its file, and each seed's model and value."""

    row: ScoreRow
    path: pathlib.Path
    parts: frozenset[tuple[bytes, float]]


def score_rows(sources: Iterable[Source]) -> list[ScoreRow]:
    """Return the rows of all sources with their baselines.

    Of one model's scores in a folder, those of the last file count. Scores that another row, such
    as one over seeds, has among its own are shown there alone.
    """
    found: dict[object, _Found] = {}
    for source in sources:
        for row, models in _rows_of(source.result):
            identities = [model_identity(model) for model in models]
            parts = frozenset(zip(identities, row.values_x100, strict=True))
            key = (source.path.parent, *identities, row.key)
            found.pop(key, None)
            found[key] = _Found(row, source.path, parts)
    kept: list[_Found] = []
    # Rows over several seeds come before those that they hold.
    for one in sorted(found.values(), key=lambda one: -len(one.parts)):
        if not any(one.row.key == other.row.key and one.parts <= other.parts for other in kept):
            kept.append(one)
    # `found` has the order of the sources.
    rows = _with_different_names([one for one in found.values() if one in kept])
    return [dataclasses.replace(row, baseline=_baseline(row, rows) or row.baseline) for row in rows]


def _with_different_names(found: Sequence[_Found]) -> list[ScoreRow]:
    """Add the file's name where rows of different models share a name."""
    counts = collections.Counter((one.row.name, one.row.key) for one in found)
    return [
        dataclasses.replace(one.row, name=f"{one.row.name} ({one.path})")
        if counts[one.row.name, one.row.key] > 1
        else one.row
        for one in found
    ]


def _rows_of(result: Result) -> Iterator[tuple[ScoreRow, list[ModelRecord]]]:
    """Yield a row and its models for each name and task.

    A row has one model per seed.
    """
    if not isinstance(result, Scores):
        return
    groups: dict[tuple[str, str], list[ScoredRun]] = {}
    for run in result.runs:
        for task, scores in run.tasks.items():
            if scores.by_metric:
                groups.setdefault((run.name, task), []).append(run)
    for (name, task), runs in groups.items():
        row = _task_row([(run.model, run.tasks[task]) for run in runs], name)
        before = [
            (msgspec.structs.replace(run.model, flow=None), run.without_flow[task])
            for run in runs
            if run.without_flow and task in run.without_flow and run.without_flow[task].by_metric
        ]
        if before:
            row = dataclasses.replace(row, baseline=_task_row(before, f"{name}, before the flow"))
        yield row, [run.model for run in runs]


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
        data=first.data,
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
