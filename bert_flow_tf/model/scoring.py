"""Score a model on similarity tasks."""

import functools
from collections.abc import Callable, Sequence

import numpy as np

from bert_flow_tf.common.records import made_by
from bert_flow_tf.model.embedder import Embedder
from bert_flow_tf.tasks.pair_files import Examples
from bert_flow_tf.tasks.protocols import score_tasks
from bert_flow_tf.tasks.scored_tasks import ScoredTask
from bert_flow_tf.tasks.scores import Scores

# Such a function gets a side, a task and its cosines.
Keep = Callable[[str, ScoredTask, np.ndarray], None]


def pairs_task(a: list[str], b: list[str], scores: Sequence[float]) -> ScoredTask:
    """Return labelled pairs of one's own as a task."""
    gold = np.asarray(scores, np.float64)
    metric = "auc" if set(scores) == {0, 1} else "spearman"
    examples = Examples(a, b, gold, has_labels=True)
    return ScoredTask("pairs", "pairs", metric, "all", "pairs", {"pairs": examples})


def scores_of(
    command: str,
    model: Embedder,
    tasks: Sequence[ScoredTask],
    keep: Keep | None = None,
) -> Scores:
    """Score a model for a command, with its calibration and without.

    The sentences are encoded once. `low_dim` and `truncate_dim` hold on both sides.

    Args:
      keep: gets "without flow" or "with flow", each task of pairs, and its cosines [n].
    """
    pooled: list[np.ndarray] = []

    def encode(sentences: list[str]) -> np.ndarray:
        pooled.append(model.encode_pooled(sentences))
        return model.reduce(pooled[0])

    def keep_side(side: str) -> Callable[[ScoredTask, np.ndarray], None] | None:
        return functools.partial(keep, side) if keep else None

    before = score_tasks(encode, tasks, keep_side("without flow"))
    if model.flow is None:
        return Scores(made_by=made_by(command), model=model.record, tasks=before)
    after = score_tasks(
        lambda sentences: model.after_flow(pooled[0]), tasks, keep_side("with flow")
    )
    return Scores(made_by=made_by(command), model=model.record, tasks=after, without_flow=before)
