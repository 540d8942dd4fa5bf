"""The records of results, found in files and folders.

A record's `kind` names its type.
"""

import os
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from bert_flow_tf.calibration.comparison import Comparison
from bert_flow_tf.common.errors import ArgumentError, UserError, suggest_file
from bert_flow_tf.common.json_files import is_run, read_json
from bert_flow_tf.common.records import Result
from bert_flow_tf.report.analyses import Analyses
from bert_flow_tf.tasks.scores import IsotropyResults, Scores
from bert_flow_tf.training.run_folder import DEV_RECORD_FILE, EVALUATION_FILE
from bert_flow_tf.training.run_records import TrainingResults

SCORES_FILE = "recipe_scores.json"
REPRODUCTION_FILE = "reproduction.json"
# Of the scores of one model in a folder, those in the last of these files count.
_LAST_FILES = (SCORES_FILE, EVALUATION_FILE)
_NOT_SCORED = "trained, but not scored; predict, or use bert-flow evaluate"
_NO_GOLD = "predictions without gold scores"
_NO_RESULTS = "no results of bert-flow"
_EXPECTED = (
    "a run, results of bert-flow evaluate, reproduce, compare, isotropy, analyses or verify, or a "
    "folder of these"
)


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
_RESULTS = (Analyses, Comparison, IsotropyResults, Scores, TrainingResults, Verification)
_KINDS = {kind.__struct_config__.tag: kind for kind in _RESULTS}


def read_result(path: pathlib.Path) -> Result | None:
    """Return the result in a JSON file, or None for other JSON."""
    values = read_json(path, object, expected="results of bert-flow", versioned=False)
    kind = _KINDS.get(str(values.get("kind"))) if isinstance(values, dict) else None
    return (
        read_json(path, kind, expected=f"results of bert-flow, {kind.__name__}") if kind else None
    )


class Source(NamedTuple):
    """A file of results."""

    path: pathlib.Path
    result: Result


class LeftOut(NamedTuple):
    """A file or folder that a report does not show.

    `is_damaged` is true if it cannot be read.
    """

    path: pathlib.Path
    reason: str
    is_damaged: bool = False

    def __str__(self) -> str:
        # A message of a reader begins with the file's name.
        return f"left out: {self.path}: {self.reason.removeprefix(f'{self.path}: ')}"


class FoundResults(NamedTuple):
    """The results in files and folders, in order."""

    sources: list[Source]
    left_out: list[LeftOut]


def find_results(runs: Iterable[str | os.PathLike]) -> FoundResults:
    """Return the results of each path.

    A folder's JSON files are read, and those of the folders directly in it. Each file of a known
    kind is a source or left out by name; so is one that cannot be read, which ends nothing else.

    Raises:
      UserError: a path is missing or has no results.
    """
    sources: list[Source] = []
    left_out: list[LeftOut] = []
    for path in map(pathlib.Path, runs):
        if not path.exists():
            raise ArgumentError(f"runs: {path}: no such file or folder{suggest_file(path)}")
        found = _results_of(path)
        if not found.sources:
            reasons = [str(one).removeprefix("left out: ") for one in found.left_out]
            why = f" ({reasons[0]}; {len(reasons)} left out)" if reasons else ""
            raise ArgumentError(f"runs: {path}: found no results{why}, expected {_EXPECTED}")
        sources += found.sources
        left_out += found.left_out
    return FoundResults(sources, left_out)


def _results_of(path: pathlib.Path) -> FoundResults:
    """Return the results of a file or folder.

    A folder has the results of its files and of the folders directly in it.
    """
    if not path.is_dir():
        return _read([path])
    own = _read(_json_files(path))
    sources = [*own.sources]
    left_out = [*own.left_out]
    is_of_run = _is_run(path)
    for child in sorted(path.iterdir()):
        if child.name.startswith(".") or not child.is_dir():
            continue
        found = _read(_json_files(child))
        sources += found.sources
        left_out += found.left_out
        if not (found.sources or found.left_out or is_of_run):
            left_out.append(LeftOut(child, _nothing_in(child)))
    if not (sources or left_out) and is_of_run:
        left_out.append(LeftOut(path, _nothing_in(path)))
    return FoundResults(sources, left_out)


def _nothing_in(folder: pathlib.Path) -> str:
    return "training has not finished" if _is_run(folder) else _NO_RESULTS


def _is_run(folder: pathlib.Path) -> bool:
    """True for a run's folder, false if its configuration is damaged.

    The damage is named where the configuration is read.
    """
    try:
        return is_run(folder)
    except UserError:
        return False


def _json_files(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return a folder's JSON files; the scores that count come last."""
    files = (path for path in folder.glob("*.json") if path.is_file())
    ranks = {name: rank for rank, name in enumerate(_LAST_FILES, start=1)}
    return sorted(files, key=lambda path: (ranks.get(path.name, 0), path.name))


def _read(files: Iterable[pathlib.Path]) -> FoundResults:
    """Read the files of one folder.

    Files that have no figures or cannot be read are left out.
    """
    sources: list[Source] = []
    left_out: list[LeftOut] = []
    trained: list[pathlib.Path] = []
    unscored: list[pathlib.Path] = []
    for path in files:
        try:
            result = read_result(path)
        except UserError as error:
            left_out.append(LeftOut(path, str(error), is_damaged=True))
            continue
        if isinstance(result, TrainingResults):
            trained.append(path)
        elif isinstance(result, Scores) and not _has_figures(result):
            # Metrics on dev stand in the text beside their record.
            unscored += [path] if path.name != DEV_RECORD_FILE else []
        elif result is not None:
            sources.append(Source(path, result))
    if not any(isinstance(one.result, Scores) for one in sources):
        left_out += [LeftOut(path, _NO_GOLD) for path in unscored]
        if not unscored:
            left_out += [LeftOut(path.parent, _NOT_SCORED) for path in trained]
    return FoundResults(sources, left_out)


def _has_figures(scores: Scores) -> bool:
    return any(task.by_metric for run in scores.runs for task in run.tasks.values())
