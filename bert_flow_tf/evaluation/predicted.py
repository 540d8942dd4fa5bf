"""Figures of a task from a file of predicted cosines, as `run_siamese --do_predict` writes it."""

import os

import numpy as np

from bert_flow_tf.errors import UserError
from bert_flow_tf.eval_stsb import read_predictions
from bert_flow_tf.evaluation.protocols import score_task
from bert_flow_tf.evaluation.sts_sets import SimilarityTask


def score_predictions_of(task: SimilarityTask, path: str | os.PathLike) -> dict:
    """The task's figures by metric and protocol, as `protocols.score_task` gives them.

    Args:
      task: its sub-sets in the order of the predictions.
      path: a cosine a line.

    Raises:
      UserError: no such file, a line that is no number, another number of lines than the task has pairs, or a figure
        that is undefined.
    """
    cosines = read_predictions(path)
    sizes = [len(subset) for subset in task.subsets]
    if len(cosines) != sum(sizes):
        raise UserError(f"{path}: {len(cosines)} predictions found, expected the {sum(sizes)} pairs of {task.source}")
    return score_task(task, np.split(cosines, np.cumsum(sizes)[:-1]))
