"""The record of `bert-flow reproduce`: rows of the paper's tables, every seed's scores and scores over seeds."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from bert_flow_tf.data.sts_sets import SimilarityTask
from bert_flow_tf.evaluation.protocols import METRICS
from bert_flow_tf.recipe.stages import Recipe, Stage
from bert_flow_tf.results.records import ReproducedRow, ReproducedTask, Reproduction, SeedRun, summarize
from bert_flow_tf.runs.record import made_by


class Row(NamedTuple):
    """The stage that scored a row of a table with one seed."""

    task: SimilarityTask
    preset: str
    seed: int
    scored: Stage


def reproduction_record(recipe: Recipe, rows: Sequence[Row]) -> Reproduction:
    """Return all results; `recipe` is of any seed.

    Raises:
      UserError: predictions are missing, or do not fit their task.
    """
    seeds = sorted({row.seed for row in rows})
    tasks = {row.task.name: row.task for row in rows}
    return Reproduction(
        made_by=made_by("bert-flow reproduce"),
        encoder=recipe.encoder_name,
        encoder_flags=dict(recipe.encoder_flags),
        with_nli=recipe.with_nli,
        seeds=seeds,
        tasks={name: _task(task, [row for row in rows if row.task is task]) for name, task in tasks.items()},
    )


def _task(task: SimilarityTask, rows: Sequence[Row]) -> ReproducedTask:
    # The paper's protocol for a task of several sets.
    protocol = "wmean" if len(task.subsets) > 1 else None
    found = {}
    for preset in dict.fromkeys(row.preset for row in rows):
        runs = [_seed_run(row) for row in rows if row.preset == preset]
        # Plots show one seed; the pairs of all of them would be most of the file.
        runs[1:] = [replace(run, scores=replace(run.scores, agreement=None)) for run in runs[1:]]
        over_seeds = {
            metric: summarize([getattr(run.scores, metric)[protocol or "all"] for run in runs])
            for metric in METRICS[task.metric]
        }
        found[preset] = replace(ReproducedRow(runs=runs), **over_seeds)
    return ReproducedTask(
        title=task.title,
        metric="auc" if task.metric == "auc" else "spearman",
        protocol=protocol,
        split=task.split,
        source=task.source,
        pairs=sum(map(len, task.subsets)),
        rows=found,
    )


def _seed_run(row: Row) -> SeedRun:
    scores = row.scored.scores()
    assert scores is not None, "a row's last stage predicts"
    directory = str(row.scored.settings.output_dir)
    return SeedRun(seed=row.seed, directory=directory, model=row.scored.model(), scores=scores)
