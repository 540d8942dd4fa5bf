"""Tasks that embeddings are scored on, by similarity or by a classifier.

Source: Li et al. 2020, section 4.1 (STS, SICK-R) and section 4.3 (QNLI by AUC on its dev set,
because its test labels are not public); SentEval's transfer tasks, which the TF1 code can score.
"""

import dataclasses
import functools
import hashlib
import os
import pathlib
from collections.abc import Mapping, Sequence

from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.tasks import senteval, tasks, transfer
from bert_flow_tf.tasks.pair_files import Examples, Task
from bert_flow_tf.tasks.tasks import task_key

_TITLES = {"stsb": "STS-B", "sickr": "SICK-R"}
_TITLES |= {name: f"STS-{name[3:]}" for name in senteval.SUBSETS}


@dataclasses.dataclass(frozen=True)
class ReadTasks:
    """The tasks that could be read, and why the others could not."""

    tasks: list["ScoredTask"]
    missing: list[UserError]

    def check_complete(self) -> None:
        """Raise `UserError` if a task could not be read."""
        if self.missing:
            raise UserError(f"not scored: {'; '.join(map(str, self.missing))}")


@dataclasses.dataclass(frozen=True, eq=False)
class ScoredTask:
    """A task and its examples.

    Attributes:
      name: lower case, as in `bert-flow evaluate --tasks`.
      title: the paper's name.
      metric: "spearman" (with Pearson's correlation) or "auc" of the cosines, or "accuracy" of a
        classifier.
      split, source: name of the scored split, and of its folder.
      subsets: pairs with gold scores by sub-set; a task without sub-sets has one of its own name;
        for a classifier, the parts of `tasks.transfer`.
    """

    name: str
    title: str
    metric: str
    split: str
    source: str
    subsets: Mapping[str, Examples]

    @property
    def sentences(self) -> list[str]:
        return [
            sentence
            for pairs in self.subsets.values()
            for sentence in pairs.sentences_a + pairs.sentences_b
        ]

    @property
    def has_gold(self) -> bool:
        return all(pairs.has_labels for pairs in self.subsets.values())

    @functools.cached_property
    def digest(self) -> str:
        """The SHA-256 of all sentences and labels, by sub-set."""
        digest = hashlib.sha256()
        for name, pairs in self.subsets.items():
            labels = pairs.labels.tolist() if pairs.has_labels else None
            digest.update(repr((name, pairs.sentences_a, pairs.sentences_b, labels)).encode())
        return digest.hexdigest()

    def label(self, subset: str) -> str:
        """Return the names of task and sub-set, for messages."""
        return self.name if subset == self.name else f"{self.name}, {subset}"


def read_task(
    name: str,
    *,
    glue_dir: str | os.PathLike | None = None,
    senteval_dir: str | os.PathLike | None = None,
    split: str | None = None,
) -> ScoredTask:
    """Read a task with its gold scores.

    Args:
      name: a task of `senteval.TASKS` or `transfer.TASKS`, or a scored one of `tasks.TASKS`;
        `STS-B` or `stsb`. MRPC is the transfer task if `senteval_dir` is given without `glue_dir`.
      glue_dir: folder that holds the tasks' folders, such as `STS-B`.
      senteval_dir: the same of SentEval, with `STS` or `downstream/STS`.
      split: "train", "dev" or "test"; None for test, or for dev if the test labels are not public.
    """
    glue = {
        task_key(task.name): task
        for task in tasks.TASKS.values()
        if task.is_regression and task.files["dev"].label_column is not None
    }
    key = tasks.known_task(name, senteval.TASKS | glue | transfer.TASKS, "tasks")
    # GLUE and SentEval have an MRPC each.
    is_sentevals_mrpc = key == "mrpc" and glue_dir is None and senteval_dir is not None
    if key not in glue or is_sentevals_mrpc:
        if split not in (None, "test"):
            raise ArgumentError(
                f"split: found {split} for {name}, expected test or none, because SentEval fixes it"
            )
        return _read_sentevals(key, senteval_dir)
    task = glue[key]
    if glue_dir is None:
        raise ArgumentError(f"glue_dir: missing, expected the folder that holds {task.directory}")
    split = split or ("test" if "gold" in task.files else "dev")
    source = str(pathlib.Path(glue_dir, task.directory))
    subsets = {key: read_scored_split(task, glue_dir, split)}
    return ScoredTask(key, task_title(task.name), task.metric, split, source, subsets)


def _read_sentevals(key: str, senteval_dir: str | os.PathLike | None) -> ScoredTask:
    """Read a task of SentEval's data."""
    task: Task
    subsets: Mapping[str, Examples]
    if key in senteval.TASKS:
        task = senteval.TASKS[key]
        folder = senteval.find_folder(senteval_dir, task)
        subsets = {name: senteval.read_subset(task, folder, name) for name in task.files}
    else:
        task = transfer.TASKS[key]
        folder = senteval.find_folder(senteval_dir, task)
        subsets = transfer.read_parts(task, folder)
    split = transfer.ALL if transfer.ALL in subsets else "test"
    return ScoredTask(key, task_title(task.name), task.metric, split, str(folder), subsets)


def read_tasks(
    names: Sequence[str],
    *,
    glue_dir: str | os.PathLike | None = None,
    senteval_dir: str | os.PathLike | None = None,
    split: str | None = None,
) -> ReadTasks:
    """Read the tasks whose data can be read, see `read_task`.

    Raises:
      ArgumentError: a name or an argument is wrong.
      UserError: no task can be read.
    """
    found: list[ScoredTask] = []
    missing: list[UserError] = []
    for name in names:
        try:
            task = read_task(name, glue_dir=glue_dir, senteval_dir=senteval_dir, split=split)
            found.append(task)
        except ArgumentError:
            raise
        except UserError as error:
            missing.append(error)
    if missing and not found:
        raise missing[0]
    return ReadTasks(found, missing)


def splits_as_task(
    task: tasks.Task, folder: str | os.PathLike, splits: Sequence[str]
) -> ScoredTask:
    """Return splits of a task's own folder as one task.

    A split has gold scores where the folder has them.
    """
    pairs = tasks.concatenate(
        [
            read_scored_split_in(task, folder, split)
            if tasks.has_gold_scores(task, folder, split)
            else tasks.read_split(task, folder, split)
            for split in splits
        ]
    )
    key = task_key(task.name)
    return ScoredTask(
        name=key,
        title=task_title(task.name),
        metric=task.metric,
        split=", ".join(splits),
        source=os.fspath(folder),
        subsets={key: pairs},
    )


def read_scored_split(task: tasks.Task, glue_dir: str | os.PathLike, split: str) -> Examples:
    """Read a split's pairs with their gold scores, float64 [n]."""
    return read_scored_split_in(task, pathlib.Path(glue_dir, task.directory), split)


def read_scored_split_in(task: tasks.Task, folder: str | os.PathLike, split: str) -> Examples:
    """Read a split's pairs and gold scores from a task's own folder."""
    gold = tasks.gold_scores_in(task, folder, split)
    examples = tasks.read_split(task, folder, split)
    if len(gold) != len(examples):
        raise UserError(
            f"{folder}: found {len(gold)} gold scores for the {len(examples)} pairs of the {split} "
            "split"
        )
    return dataclasses.replace(examples, labels=gold, has_labels=True)


def task_title(name: str) -> str:
    title = name.upper().removesuffix("-REGRESSION")
    return _TITLES.get(task_key(name), title)
