"""Write data sets as files that training reads.

STS-12 to STS-16 become a `full.txt` of two columns, as the original expects; data sets of TensorFlow Datasets become
files in GLUE's format.
"""

import pathlib
import re
from collections.abc import Sequence

import msgspec

from bert_flow_tf.data import datasets, tasks
from bert_flow_tf.data.sts_sets import SENTEVAL_SUBSETS, ScoredPairs, task_key
from bert_flow_tf.files.atomic import FolderKind, new_folder, output_folder
from bert_flow_tf.files.json_files import read_json, write_json

# `--overwrite` replaces only folders with this file, which names the data set.
MARKER_FILE = "prepared.json"


class _Marker(msgspec.Struct):
    files: dict[str, int]


def check_folder(folder: pathlib.Path, flag: str, overwrite: bool) -> None:
    """Raise `UserError` if the folder exists and may not be replaced."""
    marker, names = folder / MARKER_FILE, [MARKER_FILE]
    if marker.is_file():
        names += read_json(marker, _Marker, expected="a prepared folder's list", versioned=False).files
    kind = FolderKind("a prepared folder", MARKER_FILE, names)
    output_folder(folder, kind, overwrite=overwrite, flag=f"{flag}: {folder}")


def write_full_text(folder: pathlib.Path, subsets: Sequence[ScoredPairs], source: str) -> int:
    rows = [[a, b] for subset in subsets for a, b in zip(subset.sentences_a, subset.sentences_b, strict=True)]
    _write(folder, {"full.txt": rows}, source)
    return len(rows)


def dataset_task(name: str) -> tasks.Task:
    """Return the task whose files `write_dataset` writes."""
    dataset = datasets.get_dataset(name)
    return tasks.SNLI if dataset.name == "snli" else tasks.get_task(dataset.task)


def write_dataset(folder: pathlib.Path, name: str) -> dict[str, int]:
    """Write a TensorFlow dataset in GLUE's format; return pair counts by split.

    MNLI gets gold labels; in GLUE's own file, the original reads the first annotator's labels.
    """
    task = dataset_task(name)
    parts = {split: datasets.read_dataset(name, split) for split in tasks.SPLITS}
    layouts = [(task.layout(split), parts[split]) for split in tasks.SPLITS]
    if parts["test"].has_labels and task.gold_test is not None:
        layouts.append((task.gold_test, parts["test"]))
    _write(folder, {layout.name: _rows(task, layout, examples) for layout, examples in layouts}, name)
    return {split: len(examples) for split, examples in parts.items()}


def senteval_names(name: str) -> list[str]:
    """Return the SentEval tasks that `sts12` or `sts12-16` names; [] for others."""
    key = task_key(name)
    return list(SENTEVAL_SUBSETS) if key == "sts1216" else [key] * (key in SENTEVAL_SUBSETS)


def _rows(task: tasks.Task, layout: tasks.FileLayout, examples: tasks.Examples) -> list[list[str]]:
    """Return rows of cells, the header first; unused cells are "-"."""
    last = layout.label_column is not None and layout.label_column < 0
    width = layout.min_columns - last
    names = task.label_names
    labels = [names[int(label)] if names else f"{label:g}" for label in examples.labels]
    rows = [] if layout.header is None else [layout.header]
    rows += zip(examples.sentences_a, examples.sentences_b, labels, strict=True)
    # zip drops the labels if the layout has no column for them.
    columns = [column if column >= 0 else width for column in layout.columns]
    cells = [dict(zip(columns, row, strict=False)) for row in rows]
    return [[row.get(column, "-") for column in range(width + last)] for row in cells]


def _write(folder: pathlib.Path, files: dict[str, list[list[str]]], source: str) -> None:
    with new_folder(folder) as new:
        for name, rows in files.items():
            lines = ("\t".join(re.sub(r"[\t\r\n]+", " ", cell) for cell in row) + "\n" for row in rows)
            (new / name).write_bytes("".join(lines).encode())
        write_json(new / MARKER_FILE, {"source": source, "files": {name: len(rows) for name, rows in files.items()}})
