"""Find results on disk."""

import os
import pathlib
from collections.abc import Iterable
from typing import NamedTuple

from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.results.records import REPRODUCTION_FILE, RESULTS_FILE, SCORES_FILE, Predictions, read_result
from bert_flow_tf.runs.folder import EVALUATION_FILE, TRAIN_RESULTS_FILE
from bert_flow_tf.runs.record import Result, is_run

# If several of these in a folder score a task, the last one counts.
_RESULT_FILES = (TRAIN_RESULTS_FILE, SCORES_FILE, EVALUATION_FILE, REPRODUCTION_FILE, RESULTS_FILE)
_EXPECTED = "a run, results of bert-flow evaluate, reproduce, calibrate, analyze or verify, or a folder of these"


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
    files = [path] if path.is_file() else [path / name for name in _RESULT_FILES if (path / name).is_file()]
    # A folder with only this file may hold other evaluations, so the caller reads each of its files.
    for file in files if files != [path / EVALUATION_FILE] else ():
        result = read_result(file)
        if result is not None and not isinstance(result, Predictions):
            sources.append(Source(str(file.parent if file.name in _RESULT_FILES else file), file, result))
    if not sources and is_run(path):
        raise UserError(f"{path}: found a run without results, expected a finished one, or {EVALUATION_FILE} in it")
    return sources
