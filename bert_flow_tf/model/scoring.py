"""Score a model on similarity tasks."""

import functools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bert_flow_tf.common.records import Setting, made_by
from bert_flow_tf.model.embedder import Embedder
from bert_flow_tf.tasks.pair_files import Examples
from bert_flow_tf.tasks.protocols import score_tasks
from bert_flow_tf.tasks.scored_tasks import ScoredTask
from bert_flow_tf.tasks.scores import WITH_FLOW, WITHOUT_FLOW, ScoredRun, Scores

# Such a function gets a side, a task and its cosines.
Keep = Callable[[str, ScoredTask, np.ndarray], None]


def pairs_task(a: list[str], b: list[str], scores: Sequence[float]) -> ScoredTask:
    """Return labelled pairs of one's own as a task."""
    gold = np.asarray(scores, np.float64)
    metric = "auc" if set(scores) == {0, 1} else "spearman"
    examples = Examples(a, b, gold, has_labels=True)
    return ScoredTask("pairs", "pairs", metric, "all", "pairs", {"pairs": examples})


def sides(model: Embedder, pooled: np.ndarray) -> dict[str, np.ndarray]:
    """Return embeddings without the calibration and, if there is one, with it.

    `low_dim` and `truncate_dim` hold on both sides.

    Args:
      pooled: the embeddings of `encode_pooled`, [n, D].
    """
    found = {WITHOUT_FLOW: model.reduce(pooled)}
    if model.maps:
        found[WITH_FLOW] = model.after_flow(pooled)
    return found


def scores_of(
    command: str,
    model: Embedder,
    tasks: Sequence[ScoredTask],
    keep: Keep | None = None,
    *,
    name: str = "",
    settings: Mapping[str, Setting] | None = None,
) -> Scores:
    """Score a model for a command, with its calibration and without.

    The sentences are encoded once.

    Args:
      keep: gets the name of a side, each task of pairs, and its cosines [n].
      name, settings: see `tasks.scores.ScoredRun`.
    """
    found: dict[str, np.ndarray] = {}

    def encode(sentences: list[str]) -> np.ndarray:
        found.update(sides(model, model.encode_pooled(sentences)))
        return found[WITHOUT_FLOW]

    def keep_side(side: str) -> Callable[[ScoredTask, np.ndarray], None] | None:
        return functools.partial(keep, side) if keep else None

    before = score_tasks(encode, tasks, keep_side(WITHOUT_FLOW))
    after = None
    if WITH_FLOW in found:
        after = score_tasks(lambda sentences: found[WITH_FLOW], tasks, keep_side(WITH_FLOW))
    run = ScoredRun(
        name=model.record.checkpoint or name,
        model=model.record,
        fingerprint=model.fingerprint,
        settings=dict(settings or {}),
        tasks=after or before,
        without_flow=before if after else None,
    )
    return Scores(made_by=made_by(command), runs=[run])
