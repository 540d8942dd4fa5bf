"""Scores a file of predicted similarities against a task's gold scores, as the original's `scripts/eval_stsb.py`.

    python -m bert_flow_tf.eval_stsb --glue_path glue_data --task_name STS-B --pred_path test_results.tsv --is_test 1

prints `Pearson: 0.827406, Spearman: 0.820344`, and for labels of 0 and 1 a second line, `AUC: 0.812345`.
"""

import dataclasses
import os
import sys
from collections.abc import Sequence

import numpy as np

from bert_flow_tf import tasks
from bert_flow_tf.arguments import ArgumentParser, exit_status
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation import metrics

_SPLIT_OF_IS_TEST = {1: "test", 0: "dev", -1: "train"}

# The original scores these on their test split whatever --is_test says.
_TEST_ONLY = ("sick-r", "mrpc-regression")


@dataclasses.dataclass(frozen=True)
class Scores:
    """Agreement of predictions with gold scores; `auc` is None for tasks it does not suit."""

    pearson: float
    spearman: float
    auc: float | None = None

    def __str__(self) -> str:
        """The lines the original prints."""
        lines = f"Pearson: {self.pearson:f}, Spearman: {self.spearman:f}"
        return lines if self.auc is None else f"{lines}\nAUC: {self.auc:f}"


def read_predictions(path: str | os.PathLike) -> np.ndarray:
    """The numbers [n] of a file with one a line, float64.

    Raises:
      UserError: no such file, a line that is not one finite number, or no line at all.
    """
    lines = tasks.read_lines(path)
    if not lines:
        raise UserError(f"{path}: no predictions found, expected one number a line")
    return np.asarray(
        [tasks.parse_number(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]
    )


def split_to_score(task: tasks.Task, is_test: int) -> str:
    """The split that `--is_test` means: 1 test, 0 dev, -1 train; SICK-R and MRPC always test, as in the original.

    Raises:
      UserError: any other number.
    """
    if is_test not in _SPLIT_OF_IS_TEST:
        raise UserError(f"--is_test: found {is_test}, expected 1 (test), 0 (dev) or -1 (train)")
    return "test" if task.name in _TEST_ONLY else _SPLIT_OF_IS_TEST[is_test]


def score_predictions(predictions, task: tasks.Task | str, glue_dir: str | os.PathLike, split: str) -> Scores:
    """How well predictions [n] agree with the gold scores of one split of a task.

    Args:
      predictions: similarities in the order of the split's file.
      task: a `tasks.Task` or its name.
      glue_dir: the folder that holds the tasks' folders.
      split: "train", "dev" or "test".

    Raises:
      UserError: as `tasks.gold_scores` and the functions of `evaluation.metrics`.
    """
    task = tasks.get_task(task) if isinstance(task, str) else task
    gold = tasks.gold_scores(task, glue_dir, split)
    predictions = np.asarray(predictions, np.float64).reshape(-1)
    if predictions.size != gold.size:
        path = tasks.gold_path(task, glue_dir, split)
        raise UserError(f"{predictions.size} predictions for the {gold.size} gold scores of {path}, expected as many")
    return Scores(
        pearson=metrics.pearson(predictions, gold),
        spearman=metrics.spearman(predictions, gold),
        auc=metrics.auc(predictions, gold) if task.metric == "auc" else None,
    )


def _run(arguments: Sequence[str] | None) -> None:
    parser = ArgumentParser(
        prog="python -m bert_flow_tf.eval_stsb", description="Pearson and Spearman of predicted similarities."
    )
    parser.add_argument("--glue_path", default="../glue_data", help="folder that holds the tasks' folders")
    parser.add_argument("--task_name", default="sts-b", help="a regression task")
    parser.add_argument("--pred_path", required=True, help="file with one predicted similarity a line")
    parser.add_argument("--is_test", type=int, default=0, help="1 test, 0 dev, -1 train")
    flags = parser.parse_args(arguments)
    task = tasks.get_task(flags.task_name)
    split = split_to_score(task, flags.is_test)
    print(score_predictions(read_predictions(flags.pred_path), task, flags.glue_path, split))


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status of the command line: 0, or 2 after one `error:` line."""
    return exit_status(_run, arguments)


if __name__ == "__main__":
    sys.exit(main())
