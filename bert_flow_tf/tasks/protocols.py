"""A task's scores by sub-set and over all sub-sets.

SentEval and the paper (Li et al. 2020, section 4.1) average over sub-sets, weighted by size
(`wmean`). Later work, from SimCSE on (Gao et al. 2021, appendix B), correlates all pairs of a task
together (`all`). The two differ by several points, so every figure names its protocol.

Transfer tasks are scored by a classifier, see `tasks.classifiers`.
"""

import logging
import os
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import Count
from bert_flow_tf.common.reading import parse_number, read_lines
from bert_flow_tf.tasks import classifiers, tasks
from bert_flow_tf.tasks.scored_tasks import ScoredTask
from bert_flow_tf.vectors.metrics import auc, pearson, spearman
from bert_flow_tf.vectors.similarities import check_directions, cosines_of_pairs

logger = logging.getLogger(__name__)

# Cosines that differ by less are equal up to rounding, because float32 numbers near 1 are 1.2e-7
# apart.
_ROUNDING = 1e-6


class SubsetScores(msgspec.Struct, frozen=True, kw_only=True):
    pairs: Count
    by_metric: dict[str, float]


class TaskScores(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Scores of a task by metric and protocol.

    A single set has only the protocol "all". Without gold scores there is no metric.
    """

    title: str  # the paper's name
    metric: str  # the main metric: "spearman", "auc" or "accuracy"
    split: str
    source: str  # folder or data set of the pairs
    pairs: Count  # that are scored; sentences, for a transfer task of sentences
    data: str  # `ScoredTask.digest`
    by_metric: dict[str, dict[str, float]] = {}
    subsets: dict[str, SubsetScores] = {}
    # of a transfer task, see `tasks.classifiers.Classified`
    dev_accuracy: float | None = None
    penalties: list[float] = []

    def __post_init__(self) -> None:
        # msgspec names the file of a record that has lost a figure.
        for metric in (self.metric, *self.by_metric) if self.by_metric else ():
            found = self.by_metric.get(metric, {})
            if "all" not in found:
                raise ValueError(f"{self.title}: found no {metric} of all pairs, expected one")
            if len(found) > 1 and "wmean" not in found:
                raise ValueError(f"{self.title}: found no wmean of {metric}, expected one")

    @property
    def unit(self) -> str:
        """The word for what is counted: "pairs" or "sentences"."""
        is_of_sentences = self.metric == "accuracy" and "f1" not in self.by_metric
        return "sentences" if is_of_sentences else "pairs"

    @property
    def by_protocol(self) -> dict[str, float]:
        return self.by_metric[self.metric]


# The first metric of each is the task's own.
_METRICS = {"spearman": {"spearman": spearman, "pearson": pearson}, "auc": {"auc": auc}}


def score_tasks(
    encode: Callable[[list[str]], npt.ArrayLike],
    tasks: Sequence[ScoredTask],
    keep: Callable[[ScoredTask, np.ndarray], None] | None = None,
) -> dict[str, TaskScores]:
    """Return each task's scores by name.

    `encode` maps the n distinct sentences of all tasks to embeddings [n, D]; it is called once.
    `keep` gets each task of pairs, with the cosines of all its sets.
    Raises `UserError` if it returns values that are not finite, if a score is undefined, or, before
    it is called, if a transfer task has too few sentences of a class.
    """
    for task in tasks:
        if task.metric == "accuracy":
            classes = {name: part.labels for name, part in task.subsets.items()}
            classifiers.check_classes(classes, task.name)
    distinct = list(dict.fromkeys(sentence for task in tasks for sentence in task.sentences))
    embeddings = np.asarray(encode(distinct))
    rows = {sentence: row for row, sentence in enumerate(distinct)}

    def embedded(sentences: list[str]) -> np.ndarray:
        return embeddings[[rows[one] for one in sentences]]

    results = {}
    for task in tasks:
        logger.info("scoring %s", task.title)
        if task.metric == "accuracy":
            results[task.name] = _score_transfer(task, embedded)
            continue
        similarities = [
            cosines_of_pairs(
                embedded(part.sentences_a), embedded(part.sentences_b), task.label(name)
            )
            for name, part in task.subsets.items()
        ]
        results[task.name] = score_task(task, similarities)
        if keep is not None:
            keep(task, np.concatenate(similarities))
    return results


def _score_transfer(task: ScoredTask, embedded: Callable[[list[str]], np.ndarray]) -> TaskScores:
    """Return a transfer task's scores from its sentences' embeddings."""
    parts = {}
    for name, part in task.subsets.items():
        sides = [embedded(side) for side in (part.sentences_a, part.sentences_b) if side]
        for side in sides:
            check_directions(side, task.label(name))
        parts[name] = classifiers.Part(classifiers.features(*sides), part.labels)
    is_pairs = any(part.sentences_b for part in task.subsets.values())
    found = classifiers.classify(parts, is_pairs=is_pairs)
    return msgspec.structs.replace(
        unscored(task),
        pairs=len(task.subsets[task.split]),
        by_metric={metric: {"all": score} for metric, score in found.by_metric.items()},
        dev_accuracy=found.dev_accuracy,
        penalties=found.penalties,
    )


def unscored(task: ScoredTask) -> TaskScores:
    """Return what a task is, without figures."""
    return TaskScores(
        title=task.title,
        metric=task.metric,
        split=task.split,
        source=task.source,
        pairs=sum(len(part) for part in task.subsets.values()),
        data=task.digest,
    )


def score_task(task: ScoredTask, similarities: Sequence[np.ndarray]) -> TaskScores:
    """Return a task's scores from each sub-set's similarities."""
    subsets = {
        name: SubsetScores(
            pairs=len(part),
            by_metric=score_pairs(values, part.labels, task.metric, task.label(name)),
        )
        for (name, part), values in zip(task.subsets.items(), similarities, strict=True)
    }
    all_values = np.concatenate(similarities)
    gold = np.concatenate([part.labels for part in task.subsets.values()])
    scores = {
        name: {"all": one}
        for name, one in score_pairs(all_values, gold, task.metric, task.name).items()
    }
    for metric in scores if len(subsets) > 1 else ():
        values, sizes = zip(
            *((subset.by_metric[metric], subset.pairs) for subset in subsets.values()), strict=True
        )
        means = {"wmean": float(np.average(values, weights=sizes)), "mean": float(np.mean(values))}
        scores[metric] = means | scores[metric]
    return msgspec.structs.replace(unscored(task), by_metric=scores, subsets=subsets)


def score_pairs(
    similarities: np.ndarray, gold: np.ndarray, metric: str, label: str
) -> dict[str, float]:
    """Return the scores of one set of pairs by metric."""
    if len(similarities) > 1 and np.ptp(similarities) < _ROUNDING:
        found = f"{len(similarities)} cosines that are all {similarities[0]:.6g} up to rounding"
        raise UserError(f"{label}: found {found}, for which a correlation is undefined")
    try:
        return {name: function(similarities, gold) for name, function in _METRICS[metric].items()}
    except UserError as error:
        raise UserError(f"{label}: {error}") from error


def read_predictions(path: str | os.PathLike) -> np.ndarray:
    """Read a file with one number per line, float64 [n]."""
    lines = read_lines(path, "a file of predictions")
    return np.asarray(
        [parse_number(line, f"{path}, line {i}") for i, line in enumerate(lines, start=1)]
    )


def score_predictions(
    predictions: npt.ArrayLike, task: tasks.Task, glue_dir: str | os.PathLike, split: str
) -> dict[str, float]:
    """Return "pearson", "spearman" and, for labels, "auc" of predictions [n].

    Raises:
      UserError: gold scores are missing, the number of predictions differs, or a score is
        undefined.
    """
    gold = tasks.gold_scores(task, glue_dir, split)
    scores = {"pearson": pearson(predictions, gold), "spearman": spearman(predictions, gold)}
    return scores | ({"auc": auc(predictions, gold)} if task.metric == "auc" else {})


def score_prediction_file(task: ScoredTask, path: str | os.PathLike) -> TaskScores:
    """Return a task's scores from a file of cosines, one per pair."""
    ends = np.cumsum([len(part) for part in task.subsets.values()])
    return score_task(task, np.split(read_predictions(path), ends[:-1]))
