"""Sentence pairs of other layouts as the folders of files that training reads (see `bert_flow_tf.tasks`).

STS-12 to STS-16 become a `full.txt` of two columns, which the original's processors of that name read; TensorFlow
Datasets' sets become GLUE's files. A folder is there whole or not at all.
"""

import json
import pathlib
import re
from collections.abc import Sequence

from bert_flow_tf import tasks
from bert_flow_tf.atomic import new_folder
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation import datasets
from bert_flow_tf.evaluation.sts_sets import SENTEVAL_SUBSETS, ScoredPairs, task_key

# Names what the folder was made of, and marks it as one that may be made anew.
MARKER_FILE = "prepared.json"
FULL_TEXT_FILE = "full.txt"


def check_folder(folder: pathlib.Path, flag: str, overwrite: bool) -> None:
    """Raises `UserError`, beginning with `flag`, unless the folder is new, or `overwrite` and made by this module."""
    if not folder.exists():
        return
    if not overwrite:
        raise UserError(f"{flag}: {folder} exists, expected a new folder or --overwrite")
    check_ours(folder, flag)


def check_ours(folder: pathlib.Path, flag: str) -> None:
    """Raises `UserError`, beginning with `flag`, if a folder holds anything that this module did not write there."""
    try:
        written = json.loads((folder / MARKER_FILE).read_text(encoding="utf-8"))["files"].keys() | {MARKER_FILE}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            f"{flag}: {folder} holds no {MARKER_FILE}, so it was not made here; expected one to overwrite"
        ) from None
    others = sorted(entry.name for entry in folder.iterdir() if entry.name not in written)
    if others:
        raise UserError(f"{flag}: {folder} holds {others[0]} as well, which would be lost; expected it elsewhere")


def write_full_text(folder: pathlib.Path, subsets: Sequence[ScoredPairs], source: str) -> int:
    """Number of pairs in the `full.txt` that it writes: both sentences of every pair, sub-set after sub-set.

    Args:
      folder: to make, or to make anew.
      subsets: sub-sets of one or more of STS-12 to STS-16.
      source: where they were read.
    """
    rows = _full_text_rows(subsets)
    _write(folder, {FULL_TEXT_FILE: rows}, source)
    return len(rows)


def keep_full_text(folder: pathlib.Path, subsets: Sequence[ScoredPairs], source: str, *, overwrite: bool) -> None:
    """Writes the `full.txt` of `write_full_text` unless the very same is there.

    Raises:
      UserError: another one is there, and not to `overwrite`, or the folder holds something else.
    """
    path = folder / FULL_TEXT_FILE
    if path.is_file() and path.read_bytes() == _file_bytes(_full_text_rows(subsets)):
        return
    if folder.exists():
        check_ours(folder, "--out")
        if not overwrite:
            raise UserError(
                f"{path}: holds other pairs than {source}, expected the same, another --out, or --overwrite"
            )
    write_full_text(folder, subsets, source)


def dataset_folder(name: str) -> str:
    """Name of the folder of a dataset of TensorFlow Datasets in GLUE's layout: MNLI, SNLI, STS-B, …

    Raises:
      UserError: there is no dataset of that name.
    """
    return _layout_of(name).directory


def write_dataset(folder: pathlib.Path, name: str) -> dict[str, int]:
    """Number of pairs by split, after writing a dataset of TensorFlow Datasets as GLUE's files.

    Test labels are written where the dataset has them and the layout has a file for them. MNLI's label is the gold
    one; GLUE's file has the first annotator's in the column that the original reads.

    Args:
      folder: to make, or to make anew.
      name: one of `datasets.DATASET_NAMES`.

    Raises:
      UserError: as `datasets.read_dataset`.
    """
    task = _layout_of(name)
    files, pairs = {}, {}
    for split in tasks.SPLITS:
        examples = datasets.read_dataset(name, split)
        pairs[split] = len(examples)
        layouts = [getattr(task, split)]
        if split == "test" and examples.has_labels and task.gold_test is not None:
            layouts.append(task.gold_test)
        for layout in layouts:
            files[layout.name] = _rows(task, layout, examples)
    _write(folder, files, name)
    return pairs


def senteval_names(name: str) -> list[str]:
    """The tasks that a name of STS-12 to STS-16, or STS-12-16 for all of them, stands for; empty for any other."""
    key = task_key(name)
    if key == "sts1216":
        return list(SENTEVAL_SUBSETS)
    return [key] if key in SENTEVAL_SUBSETS else []


def _layout_of(name):
    dataset = datasets.get_dataset(name)
    return tasks.SNLI if dataset.name == "snli" else tasks.get_task(dataset.task)


def _rows(task, layout, examples):
    """Lists of cells, the header's first: the columns that nothing is known of hold a dash."""
    last = layout.label_column is not None and layout.label_column < 0
    width = layout.min_columns - last
    columns = [*layout.sentence_columns]
    if layout.label_column is not None:
        columns.append(width if last else layout.label_column)
    labels = [_label_text(task, label) for label in examples.labels]
    rows = [] if layout.header is None else [layout.header]
    for a, b, label in zip(examples.sentences_a, examples.sentences_b, labels, strict=True):
        rows.append((_one_field(a), _one_field(b), label))
    made = []
    for row in rows:
        cells = ["-"] * (width + last)
        # Without a label column the label has no place.
        for column, cell in zip(columns, row, strict=False):
            cells[column] = cell
        made.append(cells)
    return made


def _full_text_rows(subsets):
    pairs = (pair for subset in subsets for pair in zip(subset.sentences_a, subset.sentences_b, strict=True))
    return [[_one_field(a), _one_field(b)] for a, b in pairs]


def _label_text(task, label):
    if task.label_names:
        return task.label_names[int(label)]
    if task.label_scores:
        return next(text for text, score in task.label_scores.items() if score == label)
    # The shortest digits that are this float32.
    text = str(label)
    return text.removesuffix(".0") if task.metric == "auc" else text


def _one_field(sentence):
    """The sentence with tabs and line ends, which separate here, as spaces."""
    return re.sub(r"[\t\r\n]+", " ", sentence)


def _write(folder, files, source):
    with new_folder(folder) as new:
        new.mkdir()
        for name, rows in files.items():
            (new / name).write_bytes(_file_bytes(rows))
        marker = {"source": source, "files": {name: len(rows) for name, rows in files.items()}}
        (new / MARKER_FILE).write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")


def _file_bytes(rows):
    return "".join("\t".join(row) + "\n" for row in rows).encode()
