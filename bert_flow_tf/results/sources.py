"""What `bert-flow` and `run_siamese` have written, found on disk and told apart by its `kind`."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping

from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.results import REPRODUCTION_FILE
from bert_flow_tf.results.records import (
    RESULTS_FILE,
    SCORES_FILE,
    AnyResult,
    Predictions,
    Scores,
    read_result,
)
from bert_flow_tf.runs.folder import EVALUATION_FILE, TRAIN_RESULTS_FILE
from bert_flow_tf.runs.record import is_run

# Kind of a source, and what it is in words.
KINDS = {
    "run": "run of run_siamese",
    "predictions": "encoder as it is, scored by the recipe",
    "reproduction": "bert-flow reproduce",
    "evaluation": "bert-flow evaluate",
    "calibration": "bert-flow calibrate",
    "lexical": "bert-flow analyze lexical",
    "words": "bert-flow analyze words",
    "isotropy": "bert-flow analyze isotropy",
    "verification": "bert-flow verify",
}
# Kind of a result -> kind of a source that it alone makes.
_SOURCE_OF = {"training": "run", "scores": "evaluation", "calibrations": "calibration"}
# In the order in which a run's are shown.
_FILES = (TRAIN_RESULTS_FILE, SCORES_FILE, EVALUATION_FILE, REPRODUCTION_FILE, RESULTS_FILE)
_EXPECTED = (
    "a run of run_siamese, a folder of bert-flow reproduce or analyze, a file of bert-flow evaluate, calibrate or "
    "verify, or a folder of such"
)


@dataclasses.dataclass(frozen=True)
class Source:
    """One thing to report on."""

    kind: str  # Key of `KINDS`.
    path: pathlib.Path  # Its folder; for an evaluation and a calibration, its file.
    results: Mapping[pathlib.Path, AnyResult]  # What its files hold; the first says what it is.
    label: str = ""  # Short, and different from that of every other source.

    @property
    def result(self) -> AnyResult:
        """The first of its results."""
        return next(iter(self.results.values()))


def find_sources(runs: Iterable[str | os.PathLike]) -> tuple[list[Source], list[pathlib.Path]]:
    """The sources that the paths `runs` name, in their order, and what was left out of folders that were gone through.

    A folder that is no source itself stands for those directly in it, by name.

    Raises:
      UserError: a path holds no results, or one of them cannot be read, or is named twice.
    """
    sources: list[Source] = []
    left_out = []
    for path in map(pathlib.Path, runs):
        if not path.exists():
            raise ArgumentError(f"runs: {path}: no such file or folder, expected {_EXPECTED}")
        source = _source(path)
        if source is not None:
            sources.append(source)
            continue
        if not path.is_dir():
            raise ArgumentError(f"runs: {path}: found a file of another kind, expected {_EXPECTED}")
        shown = (child for child in sorted(path.iterdir()) if not child.name.startswith("."))
        children = {child: _source(child) for child in shown if child.is_dir() or child.suffix == ".json"}
        if not any(children.values()):
            raise ArgumentError(f"runs: {path}: found a folder without results, expected {_EXPECTED}")
        sources += [source for source in children.values() if source is not None]
        left_out += [child for child, source in children.items() if source is None]
    seen: set[pathlib.Path] = set()
    for source in sources:
        holds = {path.resolve() for path in source.results}
        if seen & holds:
            raise ArgumentError(f"runs: {source.path}: found twice, expected each of them once")
        seen |= holds
    return _labelled(sources), left_out


def _source(path: pathlib.Path) -> Source | None:
    files = [path] if path.is_file() else [path / name for name in _FILES if (path / name).is_file()]
    if files == [path / EVALUATION_FILE]:
        # Without a run beside it, the file stands for itself and not for its folder.
        files = []
    results = {}
    for file in files:
        result = read_result(file)
        if result is not None and not isinstance(result, Predictions):
            results[file] = result
    if not results:
        if is_run(path):
            raise UserError(
                f"{path}: found a run without results, expected a finished one, or {EVALUATION_FILE} of bert-flow "
                "evaluate"
            )
        return None
    first, result = next(iter(results.items()))
    tag = str(result.__struct_config__.tag)
    kind = _SOURCE_OF.get(tag, tag)
    if isinstance(result, Scores) and first.name == SCORES_FILE:
        kind = "predictions" if result.model.flow is None else "run"
    places = {"evaluation": first, "calibration": first, "verification": first, "run": path, "predictions": path}
    return Source(kind, places.get(kind, first.parent), results)


def _labelled(sources: list[Source]) -> list[Source]:
    """The sources with the shortest ends of their paths that tell them apart."""
    paths = [source.path.absolute() for source in sources]
    labelled = []
    for source, path in zip(sources, paths, strict=True):
        ends = (path.parts[-length:] for length in range(1, len(path.parts) + 1))
        end = next((end for end in ends if [one.parts[-len(end) :] for one in paths].count(end) == 1), None)
        labelled.append(dataclasses.replace(source, label=str(path) if end is None else "/".join(end)))
    return labelled
