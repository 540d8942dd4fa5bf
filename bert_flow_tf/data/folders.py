"""Sentence pairs of other layouts as the folders of files that training reads (see `bert_flow_tf.data.tasks`).

STS-12 to STS-16 become a `full.txt` of two columns, which the original's processors of that name read; TensorFlow
Datasets' sets become GLUE's files. A folder is there whole or not at all.
"""

import pathlib
import re
from collections.abc import Sequence

import msgspec

from bert_flow_tf.data import datasets, tasks
from bert_flow_tf.data.sts_sets import SENTEVAL_SUBSETS, ScoredPairs, task_key
from bert_flow_tf.files.atomic import FolderKind, new_folder, output_folder
from bert_flow_tf.files.json_files import read_json, write_json
from bert_flow_tf.files.locks import locked

# Names what the folder was made of, and marks it as one that may be replaced.
MARKER_FILE = "prepared.json"
FULL_TEXT_FILE = "full.txt"


class _Marker(msgspec.Struct):
    files: dict[str, int]


def check_folder(folder: pathlib.Path, flag: str, overwrite: bool) -> None:
    """Raise `UserError`, beginning with `flag`, unless the folder is new, or `overwrite` and made by this module."""
    marker, names = folder / MARKER_FILE, [MARKER_FILE]
    if marker.is_file():
        names += read_json(marker, _Marker, expected="a prepared folder's", versioned=False).files
    kind = FolderKind("a prepared folder", MARKER_FILE, names)
    output_folder(folder, kind, overwrite=overwrite, flag=f"{flag}: {folder}")


def write_full_text(folder: pathlib.Path, subsets: Sequence[ScoredPairs], source: str) -> int:
    """Write `full.txt`, both sentences of every pair, sub-set after sub-set; return the number of pairs."""
    rows = _full_text_rows(subsets)
    _write(folder, {FULL_TEXT_FILE: rows}, source)
    return len(rows)


def keep_full_text(
    folder: pathlib.Path, subsets: Sequence[ScoredPairs], source: str, *, flag: str, overwrite: bool
) -> None:
    """Write the `full.txt` of `write_full_text` unless the very same is there; other arguments as of `check_folder`."""
    path = folder / FULL_TEXT_FILE
    with locked(folder):
        if not path.is_file() or path.read_bytes() != _file_bytes(_full_text_rows(subsets)):
            check_folder(folder, flag, overwrite)
            write_full_text(folder, subsets, source)


def dataset_folder(name: str) -> str:
    """Name of the folder of a dataset of TensorFlow Datasets in GLUE's layout: MNLI, SNLI, STS-B, …"""
    return _layout_of(name).directory


def write_dataset(folder: pathlib.Path, name: str) -> dict[str, int]:
    """Write a dataset of TensorFlow Datasets as GLUE's files; return the number of pairs by split.

    Test labels are written where the dataset has them and the layout has a file for them. MNLI's label is the gold
    one; GLUE's file has the first annotator's in the column that the original reads.
    """
    task = _layout_of(name)
    parts = {split: datasets.read_dataset(name, split) for split in tasks.SPLITS}
    files = {task.layout(split).name: _rows(task, task.layout(split), parts[split]) for split in tasks.SPLITS}
    if parts["test"].has_labels and task.gold_test is not None:
        files[task.gold_test.name] = _rows(task, task.gold_test, parts["test"])
    _write(folder, files, name)
    return {split: len(examples) for split, examples in parts.items()}


def senteval_names(name: str) -> list[str]:
    """The tasks that a name of STS-12 to STS-16, or STS-12-16 for all of them, stands for; empty for any other."""
    key = task_key(name)
    return list(SENTEVAL_SUBSETS) if key == "sts1216" else [key] * (key in SENTEVAL_SUBSETS)


def _layout_of(name: str) -> tasks.Task:
    dataset = datasets.get_dataset(name)
    return tasks.SNLI if dataset.name == "snli" else tasks.get_task(dataset.task)


def _rows(task: tasks.Task, layout: tasks.FileLayout, examples: tasks.Examples) -> list[list[str]]:
    """Lists of cells, the header's first: columns other than the sentences' and the label's hold a dash."""
    last = layout.label_column is not None and layout.label_column < 0
    width = layout.min_columns - last
    columns = [column if column >= 0 else width for column in layout.columns]
    names = task.label_names
    labels = [names[int(label)] if names else f"{label:g}" for label in examples.labels]
    rows: list[tuple[str, ...]] = [] if layout.header is None else [layout.header]
    rows += zip(examples.sentences_a, examples.sentences_b, labels, strict=True)
    # Rows of a file without labels leave theirs out.
    placed = [dict(zip(columns, row, strict=False)) for row in rows]
    return [[cells.get(column, "-") for column in range(width + last)] for cells in placed]


def _full_text_rows(subsets: Sequence[ScoredPairs]) -> list[list[str]]:
    return [[a, b] for subset in subsets for a, b in zip(subset.sentences_a, subset.sentences_b, strict=True)]


def _write(folder: pathlib.Path, files: dict[str, list[list[str]]], source: str) -> None:
    with new_folder(folder) as new:
        for name, rows in files.items():
            (new / name).write_bytes(_file_bytes(rows))
        write_json(new / MARKER_FILE, {"source": source, "files": {name: len(rows) for name, rows in files.items()}})


def _file_bytes(rows: list[list[str]]) -> bytes:
    """The rows as TSV, with tabs and line ends of sentences as spaces."""
    return "".join("\t".join(re.sub(r"[\t\r\n]+", " ", cell) for cell in row) + "\n" for row in rows).encode()
