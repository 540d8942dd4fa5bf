"""What `bert-flow` and `run_siamese` have written, found on disk and told apart by its `kind`."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable, Mapping

from bert_flow_tf.errors import UserError
from bert_flow_tf.results.records import (
    EVALUATION_FILE,
    REPRODUCTION_FILE,
    RESULTS_FILE,
    SCORES_FILE,
    AnyResult,
    Predictions,
    Scores,
    kind_of,
    read_result,
)
from bert_flow_tf.runs.folder import TRAIN_RESULTS_FILE
from bert_flow_tf.runs.record import CONFIG_FILE

# The kind of a report's own results.json.
REPORT = "report"
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
}
# Kind of a result -> kind of a source that it alone makes.
_SOURCE_OF = {"training": "run", "scores": "evaluation", "calibrations": "calibration"}
# In the order in which a run's are shown.
_FILES = (TRAIN_RESULTS_FILE, SCORES_FILE, EVALUATION_FILE, REPRODUCTION_FILE, RESULTS_FILE)
_EXPECTED = (
    "a run of run_siamese, a folder of bert-flow reproduce or analyze, a file of bert-flow evaluate or calibrate, or a "
    "folder of such"
)


@dataclasses.dataclass(frozen=True)
class Source:
    """One thing to report on.

    Attributes:
      kind: key of `KINDS`.
      path: its folder; for an evaluation and a calibration, its file.
      results: what its files hold.
      label: short name, different from that of every other source.
    """

    kind: str
    path: pathlib.Path
    results: Mapping[pathlib.Path, AnyResult]
    label: str = ""

    @property
    def result(self) -> AnyResult:
        """The first of its results, which says what it is."""
        return next(iter(self.results.values()))


def find_sources(paths: Iterable[str | os.PathLike]) -> tuple[list[Source], list[pathlib.Path]]:
    """The sources that the paths name, in their order, and what was left out of folders that were gone through.

    A folder that is no source itself stands for those directly in it, by name.

    Raises:
      UserError: a path holds no results, or one of them cannot be read, or is named twice.
    """
    sources: list[Source] = []
    left_out = []
    for path in map(pathlib.Path, paths):
        if not path.exists():
            raise UserError(f"--runs: {path}: no such file or folder, expected {_EXPECTED}")
        source = _source(path)
        if source is not None:
            sources.append(source)
            continue
        if path.is_file():
            raise UserError(f"--runs: {path}: found a file of another kind, expected {_EXPECTED}")
        children = {child: _source(child) for child in sorted(path.iterdir()) if _may_be_source(child)}
        if not any(children.values()):
            raise UserError(f"--runs: {path}: found a folder without results, expected {_EXPECTED}")
        sources += [source for source in children.values() if source is not None]
        left_out += [child for child, source in children.items() if source is None]
    _refuse_repeats(sources)
    return _labelled(sources), left_out


def is_report(folder: pathlib.Path) -> bool:
    """Whether `bert-flow report` made the folder."""
    path = folder / RESULTS_FILE
    return path.is_file() and kind_of(path) == REPORT


def _may_be_source(path: pathlib.Path) -> bool:
    return not path.name.startswith(".") and (path.is_dir() or path.suffix == ".json")


def _source(path: pathlib.Path) -> Source | None:
    """The source at a path; None where there is none."""
    files = [path] if path.is_file() else [path / name for name in _FILES if (path / name).is_file()]
    if path.is_dir() and files == [path / EVALUATION_FILE]:
        # Without a run beside it, the file stands for itself and not for its folder.
        files = []
    read = {file: read_result(file) for file in files}
    results = {file: result for file, result in read.items() if not (result is None or isinstance(result, Predictions))}
    if not results:
        if path.is_dir() and (path / CONFIG_FILE).is_file() and _is_run(path / CONFIG_FILE):
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
    # A file of `evaluate` or `calibrate` is named by itself, all else by its folder.
    in_folder = path.is_dir() and kind not in ("evaluation", "calibration")
    if not path.is_dir() and kind in ("reproduction", "lexical", "words", "isotropy"):
        return Source(kind, path.parent, results)
    return Source(kind, path if in_folder or path.is_file() else first, results)


def _is_run(config: pathlib.Path) -> bool:
    # A folder of an encoder from Hugging Face has a file of that name as well.
    from bert_flow_tf.files.json_files import read_json

    found = read_json(config, object, expected="a run's configuration", versioned=False)
    return isinstance(found, dict) and "encoder_trained" in found


def _refuse_repeats(sources: Iterable[Source]) -> None:
    seen: set[pathlib.Path] = set()
    for source in sources:
        holds = {path.resolve() for path in source.results}
        if seen & holds:
            raise UserError(f"--runs: {source.path}: found twice, expected each of them once")
        seen |= holds


def _labelled(sources: list[Source]) -> list[Source]:
    """The sources with the shortest ends of their paths that tell them apart."""
    paths = [source.path.absolute() for source in sources]
    labels = []
    for path in paths:
        for length in range(1, len(path.parts) + 1):
            label = "/".join(path.parts[-length:])
            if sum(other.parts[-length:] == path.parts[-length:] for other in paths) == 1:
                break
        else:
            label = str(path)
        labels.append(label)
    return [dataclasses.replace(source, label=label) for source, label in zip(sources, labels, strict=True)]
