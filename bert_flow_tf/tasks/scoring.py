"""Score a model on similarity tasks."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_flow_tf.common.errors import ArgumentError, UserError
from bert_flow_tf.common.records import Setting, made_by
from bert_flow_tf.tasks.labelled_pairs import checked_pairs
from bert_flow_tf.tasks.pair_files import Examples
from bert_flow_tf.tasks.protocols import score_tasks
from bert_flow_tf.tasks.scored_tasks import ScoredTask
from bert_flow_tf.tasks.scores import WITH_FLOW, WITHOUT_FLOW, ScoredRun, Scores
from bert_flow_tf.vectors.sentence_model import SentenceModel

# Such a function gets a side, a task and its cosines.
Keep = Callable[[str, ScoredTask, np.ndarray], None]


def pairs_task(a: list[str], b: list[str], scores: Sequence[float]) -> ScoredTask:
    """Return labelled pairs of one's own as a task."""
    gold = np.asarray(scores, np.float64)
    metric = "auc" if set(scores) == {0, 1} else "spearman"
    examples = Examples(a, b, gold, has_labels=True)
    return ScoredTask("pairs", "pairs", metric, "all", "pairs", {"pairs": examples})


def tasks_of(on: Any) -> list[ScoredTask]:
    """Return a task, tasks, or labelled pairs as a list of tasks.

    Raises:
      ArgumentError: an element of a list of tasks is another object.
      UserError: the pairs are invalid, see `labelled_pairs.checked_pairs`.
    """
    if isinstance(on, ScoredTask):
        return [on]
    if isinstance(on, list | tuple) and any(isinstance(one, ScoredTask) for one in on):
        for one in on:
            if not isinstance(one, ScoredTask):
                raise ArgumentError(f"on: found {one!r:.40} among tasks, expected tasks alone")
        return list(on)
    a, b, scores = checked_pairs(on)
    return [pairs_task(list(a), list(b), scores)]


def sides(model: SentenceModel, pooled: np.ndarray) -> dict[str, np.ndarray]:
    """Return embeddings without the maps and, if there are any, with them.

    Averages and truncation hold on both sides. An export's are those with its maps.

    Args:
      pooled: the embeddings of `encode_pooled`, [n, D].
    """
    found = {WITHOUT_FLOW: model.reduce(pooled)}
    if model.chain.maps:
        found[WITH_FLOW] = model.after_flow(pooled)
    return found


def _fingerprint(model: SentenceModel) -> str | None:
    """Return a model's fingerprint, None for one that cannot be identified."""
    try:
        return model.fingerprint
    except UserError:
        return None


def scores_of(
    command: str,
    model: SentenceModel,
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
    record = model.model_record
    run = ScoredRun(
        name=record.checkpoint or name,
        model=record,
        fingerprint=_fingerprint(model),
        settings=dict(settings or {}),
        tasks=after or before,
        without_flow=before if after else None,
    )
    return Scores(made_by=made_by(command), runs=[run])
