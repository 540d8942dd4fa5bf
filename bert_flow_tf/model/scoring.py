"""Score a model on similarity tasks."""

from collections.abc import Sequence

import numpy as np

from bert_flow_tf.data.pair_files import Examples
from bert_flow_tf.data.scored_tasks import ScoredTask
from bert_flow_tf.evaluation.protocols import score_tasks
from bert_flow_tf.evaluation.records import Scores
from bert_flow_tf.model.embedder import Embedder
from bert_flow_tf.records import made_by


def pairs_task(a: list[str], b: list[str], scores: Sequence[float]) -> ScoredTask:
    """Return labelled pairs of one's own as a task."""
    gold = np.asarray(scores, np.float64)
    metric = "auc" if set(scores) == {0, 1} else "spearman"
    examples = Examples(a, b, gold, has_labels=True)
    return ScoredTask("pairs", "pairs", metric, "all", "pairs", {"pairs": examples})


def scores_of(command: str, model: Embedder, tasks: Sequence[ScoredTask]) -> Scores:
    """Score a model for a command, with its calibration and without.

    The sentences are encoded once. `low_dim` and `truncate_dim` hold on both sides.
    """
    pooled: list[np.ndarray] = []

    def encode(sentences: list[str]) -> np.ndarray:
        pooled.append(model.encode_pooled(sentences))
        return model.reduce(pooled[0])

    before = score_tasks(encode, tasks)
    if model.flow is None:
        return Scores(made_by=made_by(command), model=model.record, tasks=before)
    after = score_tasks(lambda sentences: model.after_flow(pooled[0]), tasks)
    return Scores(made_by=made_by(command), model=model.record, tasks=after, without_flow=before)
