"""What `bert-flow reproduce` writes of the rows of the paper's tables: every seed's scores, and scores over seeds."""

import pathlib
from collections.abc import Mapping, Sequence

import msgspec

from bert_flow_tf.data.sts_sets import SimilarityTask
from bert_flow_tf.evaluation.predicted import score_predictions_of
from bert_flow_tf.evaluation.protocols import METRICS
from bert_flow_tf.files.json_files import read_json
from bert_flow_tf.recipe.preset_stages import PresetStages
from bert_flow_tf.recipe.stages import Recipe
from bert_flow_tf.results.comparisons import published
from bert_flow_tf.results.records import (
    Predictions,
    ReproducedRow,
    ReproducedTask,
    Reproduction,
    SeedRun,
    Summary,
    TaskScores,
)
from bert_flow_tf.results.rows import reproduction_rows, summarize
from bert_flow_tf.runs.record import Model, made_by

Done = Mapping[str, Mapping[str, Sequence[tuple[int, PresetStages]]]]


def reproduction_record(
    recipe: Recipe, nli: bool, tasks: Sequence[SimilarityTask], seeds: list[int], done: Done
) -> Reproduction:
    """All results, each beside the paper's and the original's where these are of the same.

    Args:
      recipe: of any seed.
      nli: whether the encoder was fine-tuned on NLI first.
      tasks: with their gold scores.
      seeds: all of them.
      done: for each task's name, and in it for each preset's, the stages of every seed that were run.

    Raises:
      UserError: predictions that are missing, or do not fit their task.
    """
    record = Reproduction(
        made_by=made_by("bert-flow reproduce"),
        encoder=recipe.encoder_name,
        encoder_flags=dict(recipe.encoder_flags),
        with_nli=nli,
        seeds=seeds,
        tasks={task.name: _task(task, done[task.name]) for task in tasks},
    )
    for task_name, name, row in list(reproduction_rows(record, recipe.output_dir)):
        task = record.tasks[task_name]
        if row.protocol == task.protocol:
            task.rows[name] = msgspec.structs.replace(task.rows[name], **published(row))
    return record


def predicted_model(predictions: pathlib.Path) -> Model:
    """The model that a file of predictions is of, from the record that `run_siamese` writes beside it.

    Raises:
      UserError: there is none, or it is broken.
    """
    return read_json(predictions.with_suffix(".json"), Predictions, expected="a record of predictions").model


def _task(task: SimilarityTask, done: Mapping[str, Sequence[tuple[int, PresetStages]]]) -> ReproducedTask:
    rows = {name: _row(task, [_run(task, seed, made) for seed, made in runs]) for name, runs in done.items()}
    return ReproducedTask(
        title=task.title,
        metric="auc" if task.metric == "auc" else "spearman",
        protocol="wmean" if len(task.subsets) > 1 else None,
        split=task.split,
        source=task.source,
        pairs=sum(map(len, task.subsets)),
        rows=rows,
    )


def _run(task: SimilarityTask, seed: int, made: PresetStages) -> SeedRun:
    path = made.scored.prediction_path
    assert path is not None, "a preset's stage predicts"
    scores = msgspec.convert(score_predictions_of(task, path), TaskScores)
    return SeedRun(seed=seed, directory=str(made.scored.run_dir), model=predicted_model(path), scores=scores)


def _row(task: SimilarityTask, runs: list[SeedRun]) -> ReproducedRow:
    """The runs, and their scores over seeds by the protocol that stands for the task."""
    protocol = "wmean" if "wmean" in runs[0].scores.by_protocol else "all"
    over_seeds = {
        metric: Summary(**summarize([getattr(run.scores, metric)[protocol] for run in runs]))
        for metric in METRICS[task.metric]
    }
    return msgspec.structs.replace(ReproducedRow(runs=runs), **over_seeds)
