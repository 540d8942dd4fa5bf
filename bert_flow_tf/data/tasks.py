"""Tasks, and functions that read their files.

Source: the original's data processors (`siamese_utils.py`), its choice of label ranges (`run_siamese.py`) and its
scoring script (`scripts/eval_stsb.py`).

The published numbers depend on some quirks of the original, so they are kept:

- MNLI's label is column 10 of `train.tsv` (12 columns) and `dev_matched.tsv` (16): `label1`, by the first annotator.
  The gold label is the last column.
- Labels in a test split's file are ignored: its examples get label 0, or the first class. So ALLNLI trains on all SNLI
  test pairs as contradictions.
- STS-12 to STS-16 read the same `full.txt` for every split, so "all splits" has every pair three times.
"""

import dataclasses
import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_flow_tf.errors import ArgumentError, UserError, suggest
from bert_flow_tf.files.reading import parse_number, read_lines

SPLITS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True)
class FileLayout:
    """Columns of a tab-separated file for two sentences and a label.

    Attributes:
      name: the file's name in its task's folder.
      sentence_columns: the two sentences' columns, from 0.
      label_column: the label's column, from 0; -1 for the last; None if the file has no label.
      header: names in the first line, see `_find_columns`; None if the first line is data.
    """

    name: str
    sentence_columns: tuple[int, int]
    label_column: int | None = None
    header: tuple[str, str] | tuple[str, str, str] | None = None

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns of the sentences and of the label, if any."""
        return self.sentence_columns if self.label_column is None else (*self.sentence_columns, self.label_column)

    @property
    def min_columns(self) -> int:
        """The smallest number of columns in a valid row."""
        return max(self.columns) + 1 + (min(self.columns) < 0)


@dataclasses.dataclass(frozen=True)
class Task:
    """A task's files and labels.

    Attributes:
      name: lower case, as in the original's `--task_name`.
      directory: its folder's name in the GLUE folder.
      train, dev, test: layout of each split's file.
      is_regression: True if the label is a score for the cosine, False if it is a class.
      label_names: words for the labels 0, 1, …; empty if the file has numbers.
      label_max: the highest score (the lowest is 0); label / label_max is the target of the cosine.
      metric: "spearman", "auc" (of the cosine against the label) or "accuracy".
      gold_test: the file with the test split's gold scores; None if they are not public.
      sibling: a folder beside the given folder, to read instead of it; None to read the given folder.
      skips_incomplete_rows: True to skip rows with too few columns, as the published files have, with a warning.
    """

    name: str
    directory: str
    train: FileLayout
    dev: FileLayout
    test: FileLayout
    is_regression: bool = True
    label_names: tuple[str, ...] = ()
    label_max: float = 5.0
    metric: str = "spearman"
    gold_test: FileLayout | None = None
    sibling: str | None = None
    skips_incomplete_rows: bool = False

    def layout(self, split: str) -> FileLayout:
        if split not in SPLITS:
            raise UserError(f"unknown split {split!r}, expected one of {', '.join(SPLITS)}")
        return getattr(self, split)


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Pairs of sentences with their labels.

    Attributes:
      labels: [n], float32 scores as in the file (regression) or int32 class ids.
      has_labels: False if labels are missing and set to 0.
    """

    sentences_a: list[str]
    sentences_b: list[str]
    labels: np.ndarray
    has_labels: bool

    def __len__(self) -> int:
        return len(self.sentences_a)


# Hugging Face's exports use these names for the first sentence, the second, and the label.
_COMMON_NAMES = (
    ("sentence1", "premise", "question1", "question", "text1", "sentence_a"),
    ("sentence2", "hypothesis", "question2", "sentence", "text2", "sentence_b"),
    ("label", "score", "gold_label", "similarity_score", "relatedness_score"),
)
_CLASSES = ("contradiction", "entailment", "neutral")
_NLI: dict[str, Any] = {"is_regression": False, "label_names": _CLASSES, "label_max": 1.0, "metric": "accuracy"}
_MNLI: dict[str, Any] = {"files": ("train.tsv", "dev_matched.tsv", "test_matched.tsv"), **_NLI}
_BINARY: dict[str, Any] = {"label_max": 1.0, "metric": "auc"}
_MNLI_HEADER = ("sentence1", "sentence2", "label1")
_SICK_HEADER = ("sentence_A", "sentence_B", "relatedness_score")
_SICK_FILES = ("SICK_train.txt", "SICK_trial.txt", "SICK_test_annotated.txt")
_SICK_GOLD = FileLayout(_SICK_FILES[2], (1, 2), 3, _SICK_HEADER)
_QQP_HEADER = ("question1", "question2", "is_duplicate")
_MRPC_HEADER = ("#1 String", "#2 String", "Quality")
_MRPC_GOLD = FileLayout("msr_paraphrase_test.txt", (3, 4), 0, _MRPC_HEADER)
_QNLI: dict[str, Any] = {"label_names": ("not_entailment", "entailment"), "skips_incomplete_rows": True, **_BINARY}


def tsv_task(
    name: str,
    sentences: tuple[int, int],
    label: int,
    header: tuple[str, str, str],
    *,
    directory: str | None = None,
    files: tuple[str, str, str] = ("train.tsv", "dev.tsv", "test.tsv"),
    test_sentences: tuple[int, int] | None = None,
    **options: Any,
) -> Task:
    """Return a task whose train and dev files have the same columns."""
    train, dev = (FileLayout(file, sentences, label, header) for file in files[:2])
    test = FileLayout(files[2], test_sentences or sentences, None, header[:2])
    return Task(name, directory or name.upper(), train, dev, test, **options)


# SNLI is not in TASKS because the original reads it only as a part of ALLNLI.
SNLI = tsv_task("snli", (7, 8), -1, ("sentence1", "sentence2", "gold_label"), sibling="SNLI", **_NLI)

_FULL_TEXT = FileLayout("full.txt", (0, 1))
_TASKS = (
    tsv_task("sts-b", (7, 8), 9, ("sentence1", "sentence2", "score"), gold_test=FileLayout("sts-test.csv", (5, 6), 4)),
    tsv_task("sick-r", (1, 2), 3, _SICK_HEADER, files=_SICK_FILES, gold_test=_SICK_GOLD),
    *(
        Task(name, name.upper(), _FULL_TEXT, _FULL_TEXT, _FULL_TEXT)
        for name in ("sts-12-16", "sts-12", "sts-13", "sts-14", "sts-15", "sts-16")
    ),
    tsv_task("mnli", (8, 9), 10, _MNLI_HEADER, **_MNLI),
    # The original reads ALLNLI from the folder MNLI beside the given one.
    tsv_task("allnli", (8, 9), 10, _MNLI_HEADER, sibling="MNLI", **_MNLI),
    tsv_task("qqp", (3, 4), 5, _QQP_HEADER, test_sentences=(1, 2), skips_incomplete_rows=True, **_BINARY),
    tsv_task("mrpc-regression", (3, 4), 0, _MRPC_HEADER, directory="MRPC-Regression", gold_test=_MRPC_GOLD, **_BINARY),
    tsv_task("qnli-regression", (1, 2), -1, ("question", "sentence", "label"), directory="QNLI-Regression", **_QNLI),
)

TASKS = {task.name: task for task in _TASKS}


def get_task(name: Task | str) -> Task:
    if isinstance(name, Task):
        return name
    if name.lower() not in TASKS:
        known = f"{', '.join(TASKS)}{suggest(name, TASKS)}"
        raise ArgumentError(f"task_name: unknown task {name!r}, expected one of {known}")
    return TASKS[name.lower()]


def read_split(task: Task | str, data_dir: str | os.PathLike, split: str) -> Examples:
    """Read the pairs of a split in the order of its file.

    Args:
      data_dir: the task's folder; for ALLNLI, any folder beside `MNLI` and `SNLI`.
      split: one of `SPLITS`. The test split has no labels (see the module's quirks).
    """
    task = get_task(task)
    layout = task.layout(split)
    sentences_a, sentences_b, labels = _read(task, layout, data_dir)
    typed = np.asarray(labels, np.float32 if task.is_regression else np.int32)
    return Examples(sentences_a, sentences_b, typed, has_labels=layout.label_column is not None)


def read_train(task: Task | str, data_dir: str | os.PathLike, use_full_for_training: bool = False) -> Examples:
    """Read the training pairs in the original's order before its shuffle.

    For ALLNLI, all of SNLI follows the train split. `use_full_for_training` adds the task's dev and test splits (the
    paper's "target").
    """
    task = get_task(task)
    parts = [read_split(task, data_dir, "train")]
    if task.name == "allnli":
        parts += [read_split(SNLI, data_dir, split) for split in SPLITS]
    if use_full_for_training:
        parts += [read_split(task, data_dir, split) for split in ("dev", "test")]
    return concatenate(parts)


def concatenate(parts: Sequence[Examples]) -> Examples:
    return Examples(
        [sentence for part in parts for sentence in part.sentences_a],
        [sentence for part in parts for sentence in part.sentences_b],
        np.concatenate([part.labels for part in parts]),
        all(part.has_labels for part in parts),
    )


def gold_scores(task: Task | str, glue_dir: str | os.PathLike, split: str) -> np.ndarray:
    """Read the gold scores of a split, float64 [n], in file order."""
    task = get_task(task)
    layout = task.gold_test if split == "test" else task.layout(split)
    if not task.is_regression or layout is None or layout.label_column is None:
        raise UserError(f"{task.name} has no gold scores for its {split} split; use another split or task")
    return np.asarray(_read(task, layout, os.path.join(glue_dir, task.directory))[2], np.float64)


def task_folder(task: Task, data_dir: str | os.PathLike) -> str:
    folder = os.fspath(data_dir)
    if task.sibling is not None:
        # If a path ended in a slash, dirname would return all of it.
        folder = os.path.join(os.path.dirname(folder.rstrip("/")), task.sibling)
    if not os.path.isdir(folder):
        raise UserError(f"{folder}: no such folder, expected the data of {task.name}")
    return folder


def _find_columns(layout: FileLayout, header: Sequence[str], source: str) -> FileLayout:
    """Return the layout with the columns that have its names, else `_COMMON_NAMES`."""
    names, columns = [name.strip().lower() for name in header], []
    for column, name, common in zip(layout.columns, layout.header or (), _COMMON_NAMES, strict=False):
        found = next((one for one in (name.lower(), *common) if one in names), None)
        if found is None:
            raise UserError(f"{source}: found no column {name!r}, expected it or one of {', '.join(common)}")
        # Keep -1 for the last column, because rows may be longer than the header.
        columns.append(column if names[column:][:1] == [found] else names.index(found))
    a, b, *label = columns
    return dataclasses.replace(layout, sentence_columns=(a, b), label_column=label[0] if label else None)


def _read(task: Task, layout: FileLayout, data_dir: str | os.PathLike) -> tuple[list[str], list[str], list[float]]:
    """Return sentences and labels; a missing label is 0, quotes are ordinary."""
    path = os.path.join(task_folder(task, data_dir), layout.name)
    rows = [(number, line.split("\t")) for number, line in enumerate(read_lines(path), start=1)]
    by_name = {name: float(number) for number, name in enumerate(task.label_names)}
    if layout.header is not None and rows:
        given, layout = layout, _find_columns(layout, rows.pop(0)[1], f"{path}, line 1")
        if layout.columns != given.columns:
            # Hugging Face's number 0 is entailment, the second of our classes.
            by_name |= {str((i - 1) % len(by_name)): float(i) for i in range(len(by_name))}
    complete = [row for row in rows if len(row[1]) >= layout.min_columns]
    if len(complete) < len(rows):
        number, row = next(row for row in rows if len(row[1]) < layout.min_columns)
        message = f"{path}, line {number}: found {len(row)} columns, expected at least {layout.min_columns}"
        if not task.skips_incomplete_rows:
            raise UserError(message)
        logging.getLogger(__name__).warning("%s; skipped %d such lines", message, len(rows) - len(complete))
    if not complete:
        raise UserError(f"{path}: found no examples, expected at least one row")
    sentences_a, sentences_b = ([row[column] for _, row in complete] for column in layout.sentence_columns)
    label_column, labels = layout.label_column, list[float]()
    if label_column is None:
        return sentences_a, sentences_b, [0.0] * len(complete)
    for line, row in complete:
        text, cell = row[label_column], f"{path}, line {line}, column {label_column % len(row) + 1}"
        if by_name and text not in by_name:
            raise UserError(f"{cell}: found label {text!r}, expected one of {', '.join(by_name)}")
        labels.append(by_name[text] if by_name else parse_number(text, cell))
        if not 0 <= labels[-1] <= task.label_max and not by_name:
            raise UserError(f"{cell}: found score {text}, expected 0 to {task.label_max:g}")
    return sentences_a, sentences_b, labels
