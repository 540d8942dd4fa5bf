"""The records of results and their files; `kind` names a type."""

import os
import pathlib
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import Annotated, NamedTuple

import msgspec

from bert_flow_tf.calibration.comparison import Comparison
from bert_flow_tf.common.errors import ArgumentError, suggest_file
from bert_flow_tf.common.json_files import Count, read_json
from bert_flow_tf.common.records import ModelRecord, Result
from bert_flow_tf.report.analyses import Analyses
from bert_flow_tf.tasks.protocols import TaskScores
from bert_flow_tf.tasks.scores import IsotropyResults, Scores
from bert_flow_tf.training.run_folder import EVALUATION_FILE, TRAIN_RESULTS_FILE
from bert_flow_tf.training.run_records import TrainingResults, is_run

SCORES_FILE = "recipe_scores.json"
REPRODUCTION_FILE = "reproduction.json"
# If several of these in a folder score a task, the last one counts.
_RESULT_FILES = (TRAIN_RESULTS_FILE, SCORES_FILE, EVALUATION_FILE, REPRODUCTION_FILE)
_OF_ONE_RUN = {*_RESULT_FILES} - {EVALUATION_FILE}
# The records of predictions beside them, see `original.folder`.
_PREDICTIONS = re.compile(
    r"((?P<checkpoint>model\.ckpt-\d+)\.)?(test|dev|full)_(results|pooled)\.json"
)
_NOT_SCORED = "trained, but not scored; predict, or use bert-flow evaluate"
_NO_GOLD = "predictions without gold scores"
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
    scores: TaskScores | None = None  # None without gold scores


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
    Analyses,
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


class LeftOut(NamedTuple):
    """A file or folder that a report does not show."""

    path: pathlib.Path
    reason: str

    def __str__(self) -> str:
        return f"left out: {self.path}: {self.reason}"


class FoundResults(NamedTuple):
    """The results in files and folders, in order."""

    sources: list[Source]
    left_out: list[LeftOut]


def find_results(runs: Iterable[str | os.PathLike]) -> FoundResults:
    """Return the results of each path.

    If a folder has no results, the files and folders directly in it are searched.

    Raises:
      UserError: a path is missing or has no results, or a file cannot be read.
    """
    sources: list[Source] = []
    left_out: list[LeftOut] = []
    for path in map(pathlib.Path, runs):
        if not path.exists():
            raise ArgumentError(f"runs: {path}: no such file or folder{suggest_file(path)}")
        found = _results_of(path)
        if not found.sources:
            reasons = [f"{one.path}: {one.reason}" for one in found.left_out]
            why = f" ({reasons[0]}; {len(reasons)} left out)" if reasons else ""
            raise ArgumentError(f"runs: {path}: found no results{why}, expected {_EXPECTED}")
        sources += found.sources
        left_out += found.left_out
    return FoundResults(sources, left_out)


def _results_of(path: pathlib.Path) -> FoundResults:
    """Return the results of a file, or of all in a folder."""
    if not path.is_dir():
        result = read_result(path) if path.is_file() else None
        return _scored_or_left_out([] if result is None else [_source(path, result)])
    files = _result_files(path)
    # A folder with no other of these files may hold other evaluations, so each of its files is
    # read.
    if is_run(path) or any(file.name in _OF_ONE_RUN for file in files):
        return _results_in(path, files)
    sources: list[Source] = []
    left_out: list[LeftOut] = []
    for child in sorted(path.iterdir()):
        if child.name.startswith(".") or not (child.is_dir() or child.suffix == ".json"):
            continue
        found = _results_in(child, _result_files(child)) if child.is_dir() else _results_of(child)
        sources += found.sources
        left_out += found.left_out
        if not (found.sources or found.left_out):
            left_out.append(LeftOut(child, "no results of bert-flow"))
    return FoundResults(sources, left_out)


def _result_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return a folder's results; later ones replace scores of earlier ones."""
    predictions = (one for one in folder.iterdir() if _PREDICTIONS.fullmatch(one.name))
    named = (folder / name for name in _RESULT_FILES)
    return [*sorted(predictions), *(one for one in named if one.is_file())]


def _results_in(folder: pathlib.Path, files: Sequence[pathlib.Path]) -> FoundResults:
    results = [(file, read_result(file)) for file in files]
    found = _scored_or_left_out([_source(file, one) for file, one in results if one is not None])
    if not (found.sources or found.left_out) and is_run(folder):
        return FoundResults([], [LeftOut(folder, "training has not finished")])
    return found


def _source(file: pathlib.Path, result: Result) -> Source:
    name = _PREDICTIONS.fullmatch(file.name)
    if isinstance(result, Predictions) and name:
        return Source(", ".join(filter(None, [str(file.parent), name["checkpoint"]])), file, result)
    return Source(str(file.parent if file.name in _RESULT_FILES else file), file, result)


def _scored_or_left_out(found: Sequence[Source]) -> FoundResults:
    """Leave out what has no figures: a training, and predictions without scores."""
    sources: list[Source] = []
    left_out: list[LeftOut] = []
    has_scores = any(isinstance(one.result, Scores) for one in found)
    for source in found:
        if isinstance(source.result, TrainingResults):
            if len(found) == 1:
                left_out.append(LeftOut(source.path.parent, _NOT_SCORED))
        elif isinstance(source.result, Predictions) and source.result.scores is None:
            if not has_scores:
                left_out.append(LeftOut(source.path, _NO_GOLD))
        else:
            sources.append(source)
    return FoundResults(sources, left_out)
