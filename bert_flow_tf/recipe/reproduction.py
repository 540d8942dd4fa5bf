"""What `bert-flow reproduce` writes of the rows of the paper's tables: every seed's scores, and scores over seeds."""

from collections.abc import Mapping, Sequence

import msgspec

from bert_flow_tf.data.sts_sets import SimilarityTask
from bert_flow_tf.evaluation.predicted import score_predictions_of
from bert_flow_tf.evaluation.protocols import METRICS
from bert_flow_tf.recipe.run import predictions_record
from bert_flow_tf.recipe.stages import PresetStages, Recipe
from bert_flow_tf.results.comparisons import published
from bert_flow_tf.results.records import ReproducedRow, ReproducedTask, Reproduction, SeedRun, Summary, TaskScores
from bert_flow_tf.results.rows import reproduction_rows, summarize
from bert_flow_tf.runs.record import made_by

# Task's name -> preset's name -> each seed and the stages that were run with it.
Done = Mapping[str, Mapping[str, Sequence[tuple[int, PresetStages]]]]


def reproduction_record(recipe: Recipe, tasks: Sequence[SimilarityTask], seeds: list[int], done: Done) -> Reproduction:
    """All results, each beside the paper's and the original's where these are of the same; `recipe` is of any seed.

    Raises:
      UserError: predictions that are missing, or do not fit their task.
    """
    record = Reproduction(
        made_by=made_by("bert-flow reproduce"),
        encoder=recipe.encoder_name,
        encoder_flags=dict(recipe.encoder_flags),
        with_nli=recipe.with_nli,
        seeds=seeds,
        tasks={task.name: _task(task, done[task.name]) for task in tasks},
    )
    for task_name, name, row in list(reproduction_rows(record, recipe.output_dir)):
        task = record.tasks[task_name]
        if row.protocol == task.protocol:
            task.rows[name] = msgspec.structs.replace(task.rows[name], **published(row))
    return record


def _task(task: SimilarityTask, done: Mapping[str, Sequence[tuple[int, PresetStages]]]) -> ReproducedTask:
    # The paper's protocol for a task of several sets.
    protocol = "wmean" if len(task.subsets) > 1 else None
    rows = {}
    for name, made in done.items():
        runs = [_run(task, seed, stages) for seed, stages in made]
        # What plots show is of one seed: of all of them it would be most of the file.
        for i, run in enumerate(runs[1:], start=1):
            runs[i] = msgspec.structs.replace(run, scores=msgspec.structs.replace(run.scores, agreement=None))
        over_seeds = {
            metric: Summary(**summarize([getattr(run.scores, metric)[protocol or "all"] for run in runs]))
            for metric in METRICS[task.metric]
        }
        rows[name] = msgspec.structs.replace(ReproducedRow(runs=runs), **over_seeds)
    return ReproducedTask(
        title=task.title,
        metric="auc" if task.metric == "auc" else "spearman",
        protocol=protocol,
        split=task.split,
        source=task.source,
        pairs=sum(map(len, task.subsets)),
        rows=rows,
    )


def _run(task: SimilarityTask, seed: int, made: PresetStages) -> SeedRun:
    path = made.scored.prediction_path
    assert path is not None, "a preset's stage predicts"
    scores = msgspec.convert(score_predictions_of(task, path), TaskScores)
    return SeedRun(seed=seed, directory=str(made.scored.run_dir), model=predictions_record(path).model, scores=scores)
