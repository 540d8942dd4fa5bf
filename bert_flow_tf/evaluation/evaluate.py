"""Score any encoder on any number of tasks, embedding each different sentence once."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from bert_flow_tf.data.sts_sets import SimilarityTask
from bert_flow_tf.data.transfer_sets import TransferTask
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.protocols import cosines, score_task
from bert_flow_tf.evaluation.transfer import FOLDS, score_transfer

_SENTENCES_PER_CALL = 1024


def score_tasks(
    encode: Callable[[list[str]], npt.ArrayLike], tasks: Sequence[SimilarityTask | TransferTask], *, folds: int = FOLDS
) -> dict[str, dict]:
    """Return each task's result by name, from `protocols.score_task` or `transfer.score_transfer`.

    Args:
      encode: function from m sentences to an array [m, D], such as `BertFlow.encode` or the `encode` of
        sentence-transformers; called for up to 1024 different sentences of like length at a time.
      tasks: each with its gold scores, or classes.
      folds: of the classes' cross-validation.

    Raises:
      UserError: `encode` returns another shape, embeddings that are not finite, or similarities that leave a score
        undefined; names task and sub-set.
    """
    distinct = list(dict.fromkeys(sentence for task in tasks for sentence in task.sentences))
    embeddings, rows = _embed(encode, distinct), {sentence: row for row, sentence in enumerate(distinct)}

    def embeddings_of(sentences: Sequence[str]) -> np.ndarray:
        return embeddings[[rows[sentence] for sentence in sentences]]

    results = {}
    for task in tasks:
        if isinstance(task, TransferTask):
            results[task.name] = score_transfer(task, embeddings_of, folds=folds)
        else:
            sides = ((embeddings_of(s.sentences_a), embeddings_of(s.sentences_b), task.place(s)) for s in task.subsets)
            results[task.name] = score_task(task, [cosines(*side) for side in sides])
    return results


def _embed(encode: Callable[[list[str]], npt.ArrayLike], sentences: list[str]) -> np.ndarray:
    """Return the embeddings [n, D] of n different sentences, in their order."""
    values = np.empty((len(sentences), 0))
    with tqdm(total=len(sentences), desc="embed", unit="sentence", disable=None) as bar:
        longest_first = np.argsort([-len(sentence) for sentence in sentences], kind="stable")
        for start in range(0, len(sentences), _SENTENCES_PER_CALL):
            rows = longest_first[start : start + _SENTENCES_PER_CALL]
            embeddings = np.asarray(encode([sentences[i] for i in rows]))
            if embeddings.ndim != 2 or len(embeddings) != len(rows):
                raise UserError(f"embeddings: found shape {list(embeddings.shape)}, expected [{len(rows)}, D]")
            if not values.size:
                values = np.empty((len(sentences), embeddings.shape[1]), embeddings.dtype)
            values[rows] = embeddings
            bar.update(len(rows))
    return values
