"""Turn results into rows: one for each score of a task, by split and protocol, beside what it compares with."""

import dataclasses
import statistics
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from bert_flow_tf.data.sts_sets import task_title
from bert_flow_tf.paper.figures import Published, beside, is_whole
from bert_flow_tf.results.records import Agreement, Metric, Reproduction, Scores, TaskScores
from bert_flow_tf.results.sources import Source
from bert_flow_tf.runs.record import Model


@dataclasses.dataclass(frozen=True)
class ScoreRow:
    """One score of one model, or of several that differ in their seed alone."""

    name: str
    model: Model  # Of the first seed.
    seeds: Sequence[int]  # Empty where nothing is random.
    task: str  # As the paper prints it; the data set's name of TensorFlow Datasets.
    split: str
    metric: Metric
    protocol: str | None  # "wmean", "mean" or "all" for a task of several sets; None for one set.
    pairs: int
    values_x100: Sequence[float]  # The score of every seed.
    agreement: Agreement | None  # Of the first seed and protocol.
    published: Published
    baseline: "ScoreRow | None" = None  # The same embeddings before the flow.

    @property
    def place(self) -> tuple:
        """The pairs, and how they are scored."""
        return self.task, self.split, self.metric, self.protocol, self.pairs

    @property
    def mean_x100(self) -> float:
        """The mean over seeds."""
        return statistics.fmean(self.values_x100)


def score_rows(sources: Iterable[Source]) -> list[ScoreRow]:
    """Return the rows of all sources, in their order, each beside the row of the same embeddings without a flow."""
    found: dict[tuple, ScoreRow] = {}
    for source in sources:
        if isinstance(source.result, Reproduction):
            found |= {(row.name, row.place): row for row in reproduction_rows(source.result, f"{source.label}, ")}
        elif isinstance(source.result, Scores):
            found |= {(row.name, row.place): row for row in _evaluation_rows(source.result, source.label)}
    return beside_baselines(list(found.values()))


def beside_baselines(rows: Sequence[ScoreRow]) -> list[ScoreRow]:
    """Return the rows, each beside the row among them of the same embeddings without a flow."""
    return [dataclasses.replace(row, baseline=_baseline(row, rows) or row.baseline) for row in rows]


def reproduction_rows(result: Reproduction, prefix: str = "") -> Iterator[ScoreRow]:
    """Yield a row for each task, row and protocol of a reproduction; its name is that of the row after the prefix."""
    for key, task in result.tasks.items():
        for name, row in task.rows.items():
            yield from _task_rows(key, [(run.model, run.scores) for run in row.runs], prefix + name)


def _evaluation_rows(result: Scores, name: str) -> Iterator[ScoreRow]:
    plain = msgspec.structs.replace(result.model, flow=None)
    for key, task in result.tasks.items():
        before = [(plain, (result.without_flow or {})[key])] if key in (result.without_flow or {}) else []
        baselines = {row.place: row for row in _task_rows(key, before, f"{name}, before the flow")}
        for row in _task_rows(key, [(result.model, task)], name):
            yield dataclasses.replace(row, baseline=baselines.get(row.place))


def _task_rows(key: str, runs: Sequence[tuple[Model, TaskScores]], name: str) -> Iterator[ScoreRow]:
    """Yield a row for each protocol of a task, from its name in the file and each seed's model and scores."""
    for protocol in runs[0][1].by_protocol if runs else ():
        model, first = runs[0]
        task, several = key if ":" in key else task_title(first.title), len(first.by_protocol) > 1
        is_papers = (model.max_seq_length, model.low_dim) == (64, None) and (protocol == "wmean" or not several)
        is_papers = is_papers and is_whole(task, first.split, first.pairs)
        published = beside(task, first.split, model.pooling, model.flow, model.encoder) if is_papers else None
        yield ScoreRow(
            name=name,
            model=model,
            seeds=[one.seed for one, _ in runs if one.seed is not None],
            task=task,
            split=first.split,
            metric=first.metric,
            protocol=protocol if several else None,
            pairs=first.pairs,
            values_x100=[100 * scores.by_protocol[protocol] for _, scores in runs if protocol in scores.by_protocol],
            agreement=first.agreement if protocol == next(iter(first.by_protocol)) else None,
            published=published or Published(),
        )


def _baseline(row: ScoreRow, rows: Sequence[ScoreRow]) -> ScoreRow | None:
    """Return the row of the same encoder and pooling without a flow, on the same pairs."""
    if row.model.flow is None:
        return None

    def embedding(one: ScoreRow) -> tuple:
        # An encoder that a run fine-tuned differs by seed.
        seeds = () if one.model.encoder.fine_tuning is None or len(one.seeds) == 1 else tuple(one.seeds)
        return one.place, one.model.pooling, one.model.max_seq_length, one.model.low_dim, seeds

    def digests(one: ScoreRow) -> set:
        # An encoder that a run trained has no fingerprint before it is converted.
        return {one.model.encoder.fingerprint, one.model.encoder.weights} - {None}

    plain = (one for one in rows if one.model.flow is None and embedding(one) == embedding(row))
    return next((one for one in plain if digests(one) & digests(row)), None)
