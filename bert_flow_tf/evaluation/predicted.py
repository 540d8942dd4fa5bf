"""Score the files of `run_siamese --do_predict` against gold scores."""

import dataclasses
import os
from typing import Any

import numpy as np
import numpy.typing as npt

from bert_flow_tf.data import tasks
from bert_flow_tf.data.sts_sets import SimilarityTask
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.protocols import auc, pearson, score_task, spearman


@dataclasses.dataclass(frozen=True)
class PredictionScores:
    pearson: float
    spearman: float
    auc: float | None = None

    def __str__(self) -> str:
        """Return the lines that the original prints."""
        lines = f"Pearson: {self.pearson:f}, Spearman: {self.spearman:f}"
        return lines if self.auc is None else f"{lines}\nAUC: {self.auc:f}"


def read_predictions(path: str | os.PathLike) -> np.ndarray:
    """Read a file with one number per line, float64 [n]."""
    lines = tasks.read_lines(path, "a file of predictions")
    return np.asarray([tasks.parse_number(line, f"{path}, line {i}") for i, line in enumerate(lines, start=1)])


def score_predictions(
    predictions: npt.ArrayLike, task: tasks.Task | str, glue_dir: str | os.PathLike, split: str
) -> PredictionScores:
    """Score predictions [n] against a split's gold scores.

    Raises:
      UserError: gold scores are missing, the number of predictions differs, or a score is undefined.
    """
    task = tasks.get_task(task)
    gold = tasks.gold_scores(task, glue_dir, split)
    values = np.asarray(predictions, np.float64).reshape(-1)
    if values.size != gold.size:
        raise UserError(f"found {values.size} predictions, expected {gold.size}, one per pair of {task.name}, {split}")
    area = auc(values, gold) if task.metric == "auc" else None
    return PredictionScores(pearson(values, gold), spearman(values, gold), area)


def score_prediction_file(task: SimilarityTask, path: str | os.PathLike) -> dict[str, Any]:
    """Return the fields of `results.records.TaskScores` from a file of cosines."""
    cosines, sizes = read_predictions(path), [len(subset) for subset in task.subsets]
    if len(cosines) != sum(sizes):
        raise UserError(f"{path}: found {len(cosines)} predictions, expected {sum(sizes)}, one per pair of {task.name}")
    return score_task(task, np.split(cosines, np.cumsum(sizes)[:-1]))
