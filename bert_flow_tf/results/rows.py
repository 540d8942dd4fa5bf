"""Results to rows: one for each score of a task, by split, metric and protocol, with the model it is of."""

import dataclasses
import pathlib
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from bert_flow_tf.data.sts_sets import task_title
from bert_flow_tf.errors import UserError
from bert_flow_tf.results import REPRODUCTION_FILE
from bert_flow_tf.results.records import Agreement, Reproduction, Scores, TaskScores
from bert_flow_tf.results.sources import Source
from bert_flow_tf.runs.folder import EVALUATION_FILE
from bert_flow_tf.runs.record import Model

# A score that is read back may be of cosines from other batches, which differ in their last bits.
_ROUNDING_X100 = 1e-4


@dataclasses.dataclass(frozen=True)
class Row:
    """One score of one model, or of several that differ in their seed alone."""

    source: str  # Label of where it comes from.
    name: str  # Of the row in its source; the source's label where that has one model only.
    folder: pathlib.Path  # Where the source lies; a baseline in the same folder goes before others.
    model: Model  # What was scored, with the first seed.
    seeds: Sequence[int]  # Of all that is random; empty where nothing is.
    task: str  # As the paper prints it; the data set's name of TensorFlow Datasets.
    split: str
    metric: str  # "spearman" or "auc".
    protocol: str | None  # "wmean", "mean" or "all" for a task of several sets; None for one set.
    pairs: int
    values_x100: Sequence[float]  # The score of every seed.
    # For the paper's protocol of a task of several sets: each set's score, times 100, the mean over seeds.
    subsets: dict[str, float] = dataclasses.field(default_factory=dict)
    # Of the first seed, for a task's first protocol, the paper's.
    agreement: Agreement | None = None
    # The same embeddings before the flow, where they were scored with those after it.
    before_flow: "Row | None" = None

    @property
    def place(self) -> tuple:
        """What rows must agree in to be of the same pairs, scored in the same way."""
        return self.task, self.split, self.metric, self.protocol, self.pairs

    @property
    def summary(self) -> dict:
        """`summary_x100` of the values."""
        return summary_x100(self.values_x100)


def summarize(values: Sequence[float]) -> dict:
    """Mean, sample standard deviation (None of one value), median and the values, as in Table 8."""
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "median": statistics.median(values),
        "values": list(values),
    }


def summary_x100(values_x100: Sequence[float]) -> dict:
    """`summarize` of scores times 100, as a report names it, and their number `n`."""
    mean, std, median, values = summarize(values_x100).values()
    return {"mean_x100": mean, "std_x100": std, "median_x100": median, "n": len(values), "values_x100": values}


def score_rows(sources: Iterable[Source]) -> list[Row]:
    """The rows of all sources, in their order.

    Raises:
      UserError: scores of a reproduction do not fit each other.
    """
    rows = [row for source in sources for row in _rows_of(source)]
    # An encoder that one source names is the same encoder where another has it in a folder without a name.
    named = {one.model.encoder.fingerprint: one.model.encoder.name for one in rows if one.model.encoder.name}
    for i, row in enumerate(rows):
        encoder = row.model.encoder
        if encoder.name is None and encoder.fingerprint is not None and encoder.fingerprint in named:
            encoder = msgspec.structs.replace(encoder, name=named[encoder.fingerprint])
            rows[i] = dataclasses.replace(row, model=msgspec.structs.replace(row.model, encoder=encoder))
    return rows


def _rows_of(source: Source) -> list[Row]:
    rows: list[Row] = []
    for path, result in source.results.items():
        if isinstance(result, Reproduction):
            rows += [row for _, _, row in reproduction_rows(result, path.parent, source.label)]
        elif isinstance(result, Scores):
            where = {"source": source.label, "name": source.label, "folder": source.path.absolute().parent}
            of_encoder = msgspec.structs.replace(result.model, flow=None)
            plain = where | {"name": f"{source.label}, before the flow"}
            before = {row.place: row for row in _scored_rows(result.without_flow or {}, of_encoder, plain)}
            scored = [
                dataclasses.replace(row, before_flow=before.get(row.place))
                for row in _scored_rows(result.tasks, result.model, where)
            ]
            if path.name == EVALUATION_FILE:
                # What the recipe scored and `bert-flow evaluate` too stands there once.
                rows = [row for row in rows if not any(_is_same_score(row, other) for other in scored)]
            rows += scored
    return rows


def _scored_rows(tasks: Mapping[str, TaskScores], model: Model, where: Mapping[str, Any]) -> list[Row]:
    return [row for name, task in tasks.items() for row in _task_rows(name, [(model, task)], **where)]


def _is_same_score(row: Row, other: Row) -> bool:
    return row.place == other.place and abs(row.values_x100[0] - other.values_x100[0]) < _ROUNDING_X100


def reproduction_rows(
    record: Reproduction, folder: pathlib.Path, label: str = "reproduction"
) -> Iterator[tuple[str, str, Row]]:
    """(task's key, row's name, `Row`) of all that `reproduce` measured: for a task of several sets, one per protocol.

    `folder` is that of its runs, `label` the source's.

    Raises:
      UserError: the seeds of a row were not scored by the same protocols.
    """
    for key, task in record.tasks.items():
        for name, row in task.rows.items():
            if len({tuple(run.scores.by_protocol) for run in row.runs}) > 1:
                raise UserError(
                    f"{folder / REPRODUCTION_FILE}: tasks.{key}.rows.{name}.runs: found seeds scored by different "
                    "protocols, expected the same"
                )
            where = {"source": label, "name": f"{label}, {name}", "folder": folder.absolute()}
            for one in _task_rows(key, [(run.model, run.scores) for run in row.runs], **where):
                yield key, name, one


def _task_rows(key: str, runs: Sequence[tuple[Model, TaskScores]], **where: Any) -> Iterator[Row]:
    """A `Row` for each protocol of a task, from its name in the file and each seed's model and scores."""
    model, first = runs[0]
    for protocol in first.by_protocol:
        subsets = {}
        for name in first.subsets if protocol == "wmean" else ():
            of_seeds: list[Any] = [getattr(scores.subsets.get(name), first.metric, None) for _, scores in runs]
            if None not in of_seeds:
                subsets[name] = 100 * statistics.fmean(of_seeds)
        yield Row(
            **where,
            model=model,
            seeds=[one.seed for one, _ in runs if one.seed is not None],
            task=key if ":" in key else task_title(first.title),
            split=first.split,
            metric=first.metric,
            protocol=protocol if len(first.by_protocol) > 1 else None,
            pairs=first.pairs,
            values_x100=[100 * scores.by_protocol[protocol] for _, scores in runs],
            subsets=subsets,
            agreement=first.agreement if protocol == next(iter(first.by_protocol)) else None,
        )
