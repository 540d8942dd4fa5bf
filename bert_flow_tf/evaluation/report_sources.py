"""What `bert-flow` and `run_siamese` have written, found on disk and told apart by content."""

import dataclasses
import os
import pathlib
from collections.abc import Iterable

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.report_records import Record, read_record
from bert_flow_tf.experiment import CONFIG_FILE, EVALUATION_FILE, TRAIN_RESULTS_FILE, read_config

# What marks a report's own results.json.
MADE_BY = "bert-flow report"
RESULTS_FILE = "results.json"
REPRODUCTION_FILE = "reproduction.json"
SCORES_FILE = "evaluation.json"
_STAMPS = "recipe"
_ANALYSES = ("lexical", "words", "isotropy")
_EXPECTED = (
    "a run of run_siamese, a folder of bert-flow reproduce or analyze, a file of bert-flow evaluate or calibrate, or a "
    "folder of such"
)


@dataclasses.dataclass(frozen=True)
class Source:
    """One thing to report on.

    Attributes:
      kind: "run" of run_siamese, "predictions" of an encoder as it is that the recipe scored, "reproduction",
        "evaluation", "calibration", "lexical", "words" or "isotropy".
      path: its folder; for an evaluation and a calibration, its file.
      record: what its kind is known by: a run's `config.json`, the recipe's stamp of predictions, else its results.
      label: short name, different from that of every other source.
    """

    kind: str
    path: pathlib.Path
    record: Record
    label: str = ""


def find_sources(paths: Iterable[str | os.PathLike]) -> tuple[list[Source], list[pathlib.Path]]:
    """The sources that the paths name, in their order, and what was left out of folders that were gone through.

    A folder that is no source itself stands for those directly in it, by name.

    Raises:
      UserError: a path holds no results, or one of them cannot be read, or is named twice.
    """
    sources, left_out = [], []
    for path in map(pathlib.Path, paths):
        if not path.exists():
            raise UserError(f"--runs: {path}: no such file or folder, expected {_EXPECTED}")
        source = _source(path)
        if source is not None:
            sources.append(source)
            continue
        if path.is_file():
            raise UserError(f"--runs: {path}: found other content, expected {_EXPECTED}")
        children = {child: _source(child) for child in sorted(path.iterdir()) if _may_be_source(child)}
        if not any(children.values()):
            raise UserError(f"--runs: {path}: found a folder without results, expected {_EXPECTED}")
        sources += [source for source in children.values() if source is not None]
        left_out += [child for child, source in children.items() if source is None]
    _refuse_repeats(sources)
    return _labelled(sources), left_out


def is_report(folder: pathlib.Path) -> bool:
    """Whether `bert-flow report` made the folder."""
    if not (folder / RESULTS_FILE).is_file():
        return False
    return read_record(folder / RESULTS_FILE).values.get("made_by") == MADE_BY


def stamps_folder(run: pathlib.Path) -> pathlib.Path:
    """Folder in which the recipe keeps the stamps of a run's stages."""
    return run.absolute().parent / _STAMPS


def scores_stamp(run: pathlib.Path) -> Record | None:
    """The recipe's stamp with the scores of a run's predictions; None where there is none, or none that is finished.

    Raises:
      UserError: the stamp is broken.
    """
    for name in (f"{run.absolute().name}_scores", run.absolute().name):
        path = stamps_folder(run) / f"{name}.json"
        if path.is_file():
            stamp = read_record(path)
            if stamp.values.get("state") == "finished" and "spearman" in stamp:
                return stamp
    return None


def stamped_split(stamp: Record) -> str:
    """The split whose predictions a stamp scores."""
    return stamp.text("split", optional=True) or "test"


def is_of_flow(stamp: Record) -> bool:
    """Whether the predictions that a stamp scores are those of a flow."""
    return stamp.part("settings").text("flow", optional=True) == "1"


def prediction_count(run: pathlib.Path, split: str) -> int | None:
    """Number of pairs of a split whose cosines a run's folder holds; None where it holds none."""
    path = run / f"{split}_results.tsv"
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return sum(1 for _ in file)


def run_evaluation(run: pathlib.Path) -> Record | None:
    """What `bert-flow evaluate` wrote into a run's folder; None where it wrote nothing.

    Raises:
      UserError: the file is broken.
    """
    path = run / SCORES_FILE
    return read_record(path) if path.is_file() else None


def run_config(folder: pathlib.Path) -> Record | None:
    """The `config.json` of a run's folder; None where there is none, or one of something else.

    Raises:
      UserError: the file is broken.
    """
    path = folder / CONFIG_FILE
    if not path.is_file():
        return None
    # An encoder's folder of Hugging Face has a file of that name as well, without a version of ours.
    record = read_record(path)
    if not {"flags", "encoder_trained"} & record.values.keys():
        return None
    read_config(folder)
    return record


def _may_be_source(path):
    return not path.name.startswith(".") and (path.is_dir() or path.suffix == ".json")


def _source(path):
    """The source at a path; None where it is none."""
    return _file_source(path) if path.is_file() else _folder_source(path)


def _file_source(path):
    record = read_record(path)
    if record.values.get("made_by") == MADE_BY:
        return None
    if record.values.get("analysis") in _ANALYSES:
        return Source(record.values["analysis"], path.parent, record)
    if {"tasks", "model", "similarity"} <= record.values.keys():
        return Source("evaluation", path, record)
    if "fit_on" in record and isinstance(record.values.get("rows"), list):
        return Source("calibration", path, record)
    if _is_reproduction(record):
        return Source("reproduction", path.parent, record)
    return None


def _folder_source(path):
    if (path / REPRODUCTION_FILE).is_file():
        record = read_record(path / REPRODUCTION_FILE)
        if not _is_reproduction(record):
            raise UserError(f"{record.path}: found other content, expected what bert-flow reproduce writes")
        return Source("reproduction", path, record)
    config = run_config(path)
    if config is not None:
        return _run(path, config)
    if (path / RESULTS_FILE).is_file():
        source = _file_source(path / RESULTS_FILE)
        if source is not None:
            return source
    stamp = scores_stamp(path)
    # Those of a flow from another run are in the results of `reproduce`.
    if stamp is not None and not is_of_flow(stamp) and prediction_count(path, stamped_split(stamp)) is not None:
        return Source("predictions", path, stamp)
    return None


def _run(path, config):
    written = (SCORES_FILE, EVALUATION_FILE, TRAIN_RESULTS_FILE)
    if not any((path / name).is_file() for name in written) and scores_stamp(path) is None:
        raise UserError(
            f"{path}: found a run without results, expected a finished one, or {SCORES_FILE} of bert-flow evaluate"
        )
    return Source("run", path, config)


def _is_reproduction(record):
    return "with_nli" in record and isinstance(record.values.get("tasks"), dict)


def _refuse_repeats(sources):
    seen = set()
    for source in sources:
        # What a run's folder holds of an evaluation is that run's.
        holds = {source.path.resolve(), *([(source.path / SCORES_FILE).resolve()] if source.kind == "run" else [])}
        if seen & holds:
            raise UserError(f"--runs: {source.path}: found twice, expected each of them once")
        seen |= holds


def _labelled(sources):
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
