"""Similarity tasks with gold scores, as named sub-sets of sentence pairs.

STS-12 to STS-16 are in SentEval's folders: `STS/STS12-en-test/STS.input.NAME.txt` has two sentences per line, separated
by a tab; `STS.gs.NAME.txt` has a gold score per line, or an empty line for a pair without score, which is skipped.
SentEval's STS-13 has no SMT part. Other tasks are those of `bert_flow_tf.data.tasks` and TensorFlow Datasets.

Source: Conneau and Kiela, SentEval, 2018, <https://arxiv.org/abs/1803.05449>; Li et al. 2020, section 4.1 (STS, SICK-R)
and section 4.3 (QNLI by AUC on its dev set, because its test labels are not public).
"""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from bert_flow_tf.data import datasets, tasks
from bert_flow_tf.errors import ArgumentError, UserError, suggest
from bert_flow_tf.files.reading import parse_number, read_lines

SENTEVAL_SUBSETS = {
    "sts12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "sts13": ("FNWN", "headlines", "OnWN"),
    "sts14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "sts15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "sts16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}

_TITLES = {"stsb": "STS-B", "sickr": "SICK-R"} | {name: f"STS-{name[3:]}" for name in SENTEVAL_SUBSETS}


@dataclasses.dataclass(frozen=True, eq=False)
class ScoredPairs:
    """A named set of n sentence pairs with gold scores, float64 [n]."""

    name: str
    sentences_a: list[str]
    sentences_b: list[str]
    gold: np.ndarray

    def __len__(self) -> int:
        return len(self.sentences_a)


@dataclasses.dataclass(frozen=True, eq=False)
class SimilarityTask:
    """A task scored by cosine similarity.

    Attributes:
      name: lower case, as in `bert-flow evaluate --tasks`.
      title: the paper's name.
      metric: "spearman" (with Pearson's correlation) or "auc".
      split, source: name of the split, and of its folder or dataset.
      subsets: the sub-sets; a task without sub-sets has one.
    """

    name: str
    title: str
    metric: str
    split: str
    source: str
    subsets: Sequence[ScoredPairs]

    @property
    def sentences(self) -> list[str]:
        return [sentence for subset in self.subsets for sentence in subset.sentences_a + subset.sentences_b]

    def label(self, subset: ScoredPairs) -> str:
        """Return the names of task and sub-set, for messages."""
        return self.name if subset.name == self.name else f"{self.name}, {subset.name}"


def read_task(
    name: str,
    *,
    glue_dir: str | os.PathLike | None = None,
    senteval_dir: str | os.PathLike | None = None,
    split: str | None = None,
) -> SimilarityTask:
    """Read a task with its gold scores.

    Args:
      name: `sts12` to `sts16`, or a scored task of `tasks.TASKS` or of TensorFlow Datasets, spelled `STS-B` or `stsb`.
      glue_dir: folder that holds `STS-B`, `SICK-R`, `MRPC-Regression`, `QNLI-Regression` or `QQP`.
      senteval_dir: folder that holds SentEval's `STS` or `downstream/STS`.
      split: "train", "dev" or "test"; None for test, or for dev if the test labels are not public (QNLI, QQP, GLUE in
        TensorFlow Datasets).
    """
    scored = (task for task in tasks.TASKS.values() if task.is_regression and task.dev.label_column is not None)
    key, glue_tasks = task_key(name), {task_key(task.name): task for task in scored}
    known = (*SENTEVAL_SUBSETS, *glue_tasks, *datasets.SCORED_NAMES)
    if key in SENTEVAL_SUBSETS:
        if split not in (None, "test"):
            raise ArgumentError(f"split: found {split} for {name}, expected test, the only split of STS-12 to STS-16")
        folder = senteval_folder(senteval_dir, f"STS/{key.upper()}-en-test", name)
        files = [(folder / f"STS.input.{one}.txt", folder / f"STS.gs.{one}.txt", one) for one in SENTEVAL_SUBSETS[key]]
        return SimilarityTask(
            key, _TITLES[key], "spearman", "test", str(folder), [read_scored_pairs(*paths) for paths in files]
        )
    if datasets.is_dataset_name(name):
        dataset = datasets.get_dataset(name)
        task, split = tasks.get_task(dataset.task), split or "dev"
        if not task.is_regression:
            raise ArgumentError(f"tasks: {name} has classes, not scores; expected some of {', '.join(known)}")
        examples = datasets.read_dataset(name, split)
        if not examples.has_labels:
            raise ArgumentError(f"split: {name} has no gold scores for its split {split}; use another split")
        pairs = ScoredPairs(name, examples.sentences_a, examples.sentences_b, examples.labels.astype(np.float64))
        return SimilarityTask(name, task_title(task.name), task.metric, split, name, [pairs])
    if key not in glue_tasks:
        raise ArgumentError(f"tasks: unknown task {name!r}, expected some of {', '.join(known)}{suggest(name, known)}")
    task = glue_tasks[key]
    if glue_dir is None:
        raise ArgumentError(f"glue_dir: missing, expected the folder that holds {task.directory}")
    split, source = split or ("test" if task.gold_test else "dev"), str(pathlib.Path(glue_dir) / task.directory)
    pairs = read_scored_split(task, glue_dir, split, key)
    return SimilarityTask(key, task_title(key), task.metric, split, source, [pairs])


def task_key(name: str) -> str:
    """Return `SimilarityTask.name` for the paper's or the original's spelling."""
    return name.lower().replace("-", "").removesuffix("regression")


def task_title(name: str) -> str:
    return _TITLES.get(task_key(name), name.upper().removesuffix("-REGRESSION"))


def senteval_folder(senteval_dir: str | os.PathLike | None, folder: str, name: str) -> pathlib.Path:
    """Return a task's folder in SentEval's data or its `downstream`."""
    if senteval_dir is None:
        raise ArgumentError(f"senteval_dir: missing, expected the folder that holds {folder}, for {name}")
    folders = [pathlib.Path(senteval_dir, part, folder) for part in ("downstream", "")]
    for path in folders:
        if path.is_dir():
            return path
    raise UserError(f"{folders[1]}: no such folder, expected SentEval's data in {senteval_dir}")


def read_scored_pairs(input_path: str | os.PathLike, gold_path: str | os.PathLike, name: str) -> ScoredPairs:
    pairs = [line.split("\t") for line in read_lines(input_path)]
    for number, columns in enumerate(pairs, start=1):
        if len(columns) != 2:
            raise UserError(f"{input_path}, line {number}: found {len(columns)} columns, expected two sentences")
    # Keep empty lines at the end, because the last pairs may have no score.
    gold = read_lines(gold_path, keep_empty_end=True)
    scored = [number for number, line in enumerate(gold) if line.strip()]
    if not scored or len(gold) < len(pairs) or scored[-1] >= len(pairs):
        found = f"found {len(gold)} gold lines with {len(scored)} scores"
        raise UserError(f"{gold_path}: {found} for the {len(pairs)} pairs of {input_path}, expected a line per pair")
    scores = [parse_number(gold[i].strip(), f"{gold_path}, line {i + 1}") for i in scored]
    return ScoredPairs(name, [pairs[i][0] for i in scored], [pairs[i][1] for i in scored], np.array(scores))


def read_scored_split(task: tasks.Task, glue_dir: str | os.PathLike, split: str, name: str) -> ScoredPairs:
    gold = tasks.gold_scores(task, glue_dir, split)
    folder = pathlib.Path(glue_dir) / task.directory
    examples = tasks.read_split(task, folder, split)
    if len(gold) != len(examples):
        raise UserError(f"{folder}: found {len(gold)} gold scores for the {len(examples)} pairs of the {split} split")
    return ScoredPairs(name, examples.sentences_a, examples.sentences_b, gold)
