"""Score a model on similarity tasks."""

from collections.abc import Sequence

import numpy as np

from bert_flow_tf.data.scored_tasks import ScoredTask
from bert_flow_tf.evaluation.protocols import score_tasks
from bert_flow_tf.evaluation.records import Scores
from bert_flow_tf.model.embedder import Embedder
from bert_flow_tf.records import made_by


def scores_of(command: str, model: Embedder, tasks: Sequence[ScoredTask]) -> Scores:
    """Score a model for a command, with its calibration and without.

    The sentences are encoded once. `low_dim` holds on both sides.
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
