"""The records of results and their files; `kind` names a type."""

import os
import pathlib
import statistics
from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

import msgspec

from bert_flow_tf.calibration.comparison import Comparison
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.evaluation.protocols import TaskScores
from bert_flow_tf.evaluation.records import IsotropyResults, Scores
from bert_flow_tf.files.json_files import Count, read_json
from bert_flow_tf.original.folder import EVALUATION_FILE
from bert_flow_tf.records import ModelRecord, Result
from bert_flow_tf.training.records import TrainingResults, is_run
from bert_flow_tf.training.run_folder import TRAIN_RESULTS_FILE

SCORES_FILE = "recipe_scores.json"
REPRODUCTION_FILE = "reproduction.json"
# If several of these in a folder score a task, the last one counts.
_RESULT_FILES = (TRAIN_RESULTS_FILE, SCORES_FILE, EVALUATION_FILE, REPRODUCTION_FILE)
_EXPECTED = (
    "a run, results of bert-flow evaluate, reproduce, compare, isotropy or verify, or a "
    "folder of these"
)


class Predictions(Result, frozen=True, kw_only=True, tag="predictions"):
    """The record of a file of predicted cosines, one per pair."""

    model: ModelRecord
    task: str
    splits: list[str]
    pairs: Count


class Summary(NamedTuple):
    """Statistics of a score over seeds; `std` divides by n - 1."""

    mean: float
    std: float | None
    median: float


def summarize(values: Sequence[float]) -> Summary:
    std = statistics.stdev(values) if len(values) > 1 else None
    return Summary(statistics.fmean(values), std, statistics.median(values))


class SeedRun(msgspec.Struct, frozen=True, kw_only=True):
    seed: Count
    directory: str
    model: ModelRecord
    scores: TaskScores


class Reproduction(Result, frozen=True, kw_only=True, tag="reproduction"):
    """Rows of the paper's tables over seeds, by task and row."""

    encoder: str
    encoder_flags: dict[str, str]
    with_nli: bool
    seeds: list[Count]
    tasks: dict[str, dict[str, Annotated[list[SeedRun], msgspec.Meta(min_length=1)]]]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """A deviation from the TF1 code or an equation, and its limit."""

    what: str
    found: float | None  # None if not finite
    limit: float


class Verification(Result, frozen=True, kw_only=True, tag="verification"):
    """Results of `bert-flow verify`; `evidence` is the folder of its tests."""

    evidence: str
    deviations: list[Checked]
    failed: list[str]
    not_run: list[str]


# `RunConfig` is left out because a configuration is not a result.
_RESULTS = (
    Comparison,
    IsotropyResults,
    Predictions,
    Reproduction,
    Scores,
    TrainingResults,
    Verification,
)
_KINDS = {kind.__struct_config__.tag: kind for kind in _RESULTS}


def read_result(path: pathlib.Path) -> Result | None:
    """Return the result in a JSON file, or None for other JSON."""
    values = read_json(path, object, expected="results of bert-flow", versioned=False)
    kind = _KINDS.get(str(values.get("kind"))) if isinstance(values, dict) else None
    return (
        read_json(path, kind, expected=f"results of bert-flow, {kind.__name__}") if kind else None
    )


class Source(NamedTuple):
    """A file of results, labelled by its folder or name."""

    label: str
    path: pathlib.Path
    result: Result


def find_sources(runs: Iterable[str | os.PathLike]) -> list[Source]:
    """Return the result files of each path in order.

    If a folder has no results, the files and folders directly in it are searched.

    Raises:
      UserError: a path has no results, or a file cannot be read.
    """
    sources: list[Source] = []
    for path in map(pathlib.Path, runs):
        found = _sources(path)
        for child in sorted(path.iterdir()) if path.is_dir() and not found else ():
            if not child.name.startswith(".") and (child.is_dir() or child.suffix == ".json"):
                found += _sources(child)
        if not found:
            raise ArgumentError(f"runs: {path}: found no results, expected {_EXPECTED}")
        sources += found
    return sources


def _sources(path: pathlib.Path) -> list[Source]:
    sources: list[Source] = []
    files = (
        [path]
        if path.is_file()
        else [path / name for name in _RESULT_FILES if (path / name).is_file()]
    )
    # A folder with only this file may hold other evaluations, so the caller reads each of its
    # files.
    for file in files if files != [path / EVALUATION_FILE] else ():
        result = read_result(file)
        if result is not None and not isinstance(result, Predictions):
            sources.append(
                Source(str(file.parent if file.name in _RESULT_FILES else file), file, result)
            )
    if not sources and is_run(path):
        raise UserError(
            f"{path}: found a run without results, expected a finished one, or {EVALUATION_FILE} "
            "in it"
        )
    return sources
