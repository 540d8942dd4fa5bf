"""Tasks, and functions that read their files.

Source: the original's data processors (`siamese_utils.py`), its choice of label ranges
(`run_siamese.py`) and its scoring script (`scripts/eval_stsb.py`).

The published numbers depend on some quirks of the original, so they are kept:

- MNLI's label is column 10 of `train.tsv` (12 columns) and `dev_matched.tsv` (16): `label1`, by the
  first annotator. The gold label is the last column.
- Labels in a test split's file are ignored: its examples get label 0, or the first class. So ALLNLI
  trains on all SNLI test pairs as contradictions.
- STS-12 to STS-16 read the same `full.txt` for every split, so "all splits" has every pair three
  times.
"""

import os
import pathlib
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from bert_flow_tf.common.errors import ArgumentError, UserError, suggest
from bert_flow_tf.tasks.pair_files import Examples, FileLayout, Task, read_rows

SPLITS = ("train", "dev", "test")

_CLASSES = ("contradiction", "entailment", "neutral")
_NLI: dict[str, Any] = {
    "is_regression": False,
    "label_names": _CLASSES,
    "label_max": 1.0,
    "metric": "accuracy",
}
_MNLI: dict[str, Any] = {"files": ("train.tsv", "dev_matched.tsv", "test_matched.tsv"), **_NLI}
_BINARY: dict[str, Any] = {"label_max": 1.0, "metric": "auc"}
_QNLI: dict[str, Any] = {
    "label_names": ("not_entailment", "entailment"),
    "skips_incomplete_rows": True,
    **_BINARY,
}
_MNLI_COLUMNS = (8, 9), 10, ("sentence1", "sentence2", "label1")
_QQP_COLUMNS = (3, 4), 5, ("question1", "question2", "is_duplicate")
_SICK_COLUMNS = (1, 2), 3, ("sentence_A", "sentence_B", "relatedness_score")
_MRPC_COLUMNS = (3, 4), 0, ("#1 String", "#2 String", "Quality")
# The published files, which SentEval has too.
SICK = [
    FileLayout(f"SICK_{part}.txt", *_SICK_COLUMNS) for part in ("train", "trial", "test_annotated")
]
MRPC = [FileLayout(f"msr_paraphrase_{part}.txt", *_MRPC_COLUMNS) for part in ("train", "test")]


def tsv_task(
    name: str,
    sentences: tuple[int, int],
    label: int,
    header: tuple[str, str, str],
    *,
    directory: str | None = None,
    files: Sequence[str] = ("train.tsv", "dev.tsv", "test.tsv"),
    test_sentences: tuple[int, int] | None = None,
    gold_test: FileLayout | None = None,
    **options: Any,
) -> Task:
    """Return a task whose train and dev files have the same columns."""
    layouts = {
        split: FileLayout(file, sentences, label, header)
        for split, file in zip(SPLITS, files, strict=True)
    }
    layouts["test"] = FileLayout(files[2], test_sentences or sentences, None, header[:2])
    layouts |= {} if gold_test is None else {"gold": gold_test}
    return Task(name, directory or name.upper(), layouts, **options)


# SNLI is not in TASKS because the original reads it only as a part of ALLNLI.
SNLI = tsv_task(
    "snli", (7, 8), -1, ("sentence1", "sentence2", "gold_label"), sibling="SNLI", **_NLI
)

_FULL_TEXT = dict.fromkeys(SPLITS, FileLayout("full.txt", (0, 1)))
_TASKS = (
    tsv_task(
        "sts-b",
        (7, 8),
        9,
        ("sentence1", "sentence2", "score"),
        gold_test=FileLayout("sts-test.csv", (5, 6), 4),
    ),
    tsv_task("sick-r", *_SICK_COLUMNS, files=[file.name for file in SICK], gold_test=SICK[2]),
    *(
        Task(name, name.upper(), _FULL_TEXT)
        for name in ("sts-12-16", "sts-12", "sts-13", "sts-14", "sts-15", "sts-16")
    ),
    tsv_task("mnli", *_MNLI_COLUMNS, **_MNLI),
    # The original reads ALLNLI from the folder MNLI beside the given one.
    tsv_task("allnli", *_MNLI_COLUMNS, sibling="MNLI", **_MNLI),
    tsv_task("qqp", *_QQP_COLUMNS, test_sentences=(1, 2), skips_incomplete_rows=True, **_BINARY),
    tsv_task(
        "mrpc-regression", *_MRPC_COLUMNS, directory="MRPC-Regression", gold_test=MRPC[1], **_BINARY
    ),
    tsv_task(
        "qnli-regression",
        (1, 2),
        -1,
        ("question", "sentence", "label"),
        directory="QNLI-Regression",
        **_QNLI,
    ),
)
TASKS = {task.name: task for task in _TASKS}


def task_key(name: str) -> str:
    """Return what all spellings of a task share."""
    return name.lower().replace("-", "").removesuffix("regression")


def known_task(name: str, known: Collection[str], argument: str) -> str:
    """Return the known task that a name spells.

    Raises:
      ArgumentError: no known task has this name; the message begins with `argument`.
    """
    for one in known:
        if task_key(one) == task_key(name):
            return one
    expected = f"{', '.join(known)}{suggest(name, known)}"
    raise ArgumentError(f"{argument}: unknown task {name!r}, expected one of {expected}")


def get_task(name: str, argument: str = "task_name") -> Task:
    """Return a task by name; case and hyphens do not matter."""
    return TASKS[known_task(name, TASKS, argument)]


def read_split(task: Task, data_dir: str | os.PathLike, split: str) -> Examples:
    """Read the pairs of one of `Task.files`, in its order.

    `data_dir` is the task's folder; for ALLNLI, any folder beside `MNLI` and `SNLI`.
    """
    layout = task.files[split]
    check_task_folder(task, data_dir)
    path = task_folder(task, data_dir) / layout.name
    return task.parse(read_rows(path), path, layout)


def read_train(
    task: Task, data_dir: str | os.PathLike, use_full_for_training: bool = False
) -> Examples:
    """Read the training pairs in the original's order before its shuffle.

    For ALLNLI, all of SNLI follows the train split. `use_full_for_training` adds the task's dev and
    test splits (the paper's "target").
    """
    parts = [(task, "train")]
    parts += [(SNLI, split) for split in SPLITS] if task.name == "allnli" else []
    parts += [(task, "dev"), (task, "test")] if use_full_for_training else []
    return concatenate([read_split(one, data_dir, split) for one, split in parts])


def concatenate(parts: Sequence[Examples]) -> Examples:
    return Examples(
        [sentence for part in parts for sentence in part.sentences_a],
        [sentence for part in parts for sentence in part.sentences_b],
        np.concatenate([part.labels for part in parts]),
        all(part.has_labels for part in parts),
    )


def has_gold_scores(task: Task, data_dir: str | os.PathLike, split: str) -> bool:
    """True if a task's folder has the file of a split's scores.

    The content of the file does not matter.
    """
    layout = task.files.get("gold" if split == "test" else split)
    if not task.is_regression or layout is None or layout.label_column is None:
        return False
    return (task_folder(task, data_dir) / layout.name).exists()


def gold_scores(task: Task, glue_dir: str | os.PathLike, split: str) -> np.ndarray:
    """Read the gold scores of a split, float64 [n], in file order."""
    return gold_scores_in(task, pathlib.Path(glue_dir, task.directory), split)


def gold_scores_in(task: Task, data_dir: str | os.PathLike, split: str) -> np.ndarray:
    """Read the gold scores from a task's own folder."""
    name = "gold" if split == "test" else split
    if not task.is_regression or name not in task.files or task.files[name].label_column is None:
        raise UserError(
            f"{task.name} has no gold scores for its {split} split; use another split or task"
        )
    return read_split(task, data_dir, name).labels


def check_task_folder(task: Task, data_dir: str | os.PathLike) -> None:
    """Raise `UserError` if a task's folder is missing."""
    folder = task_folder(task, data_dir)
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder, expected the data of {task.name}")


def task_folder(task: Task, data_dir: str | os.PathLike) -> pathlib.Path:
    folder = pathlib.Path(data_dir)
    if task.sibling is not None:
        folder = folder.parent / task.sibling
    return folder
