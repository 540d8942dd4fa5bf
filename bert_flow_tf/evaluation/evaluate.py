"""Any encoder on any number of tasks, each different sentence embedded once."""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from bert_flow_tf.data.sts_sets import SimilarityTask
from bert_flow_tf.data.transfer_sets import TransferTask
from bert_flow_tf.encoder.batches import length_batches
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.protocols import cosines, score_task
from bert_flow_tf.evaluation.transfer import FOLDS, score_transfer

_SENTENCES_PER_CALL = 1024


def evaluate(
    encode: Callable[[list[str]], npt.ArrayLike], tasks: Sequence[SimilarityTask | TransferTask], *, folds: int = FOLDS
) -> dict[str, dict]:
    """The scores of every task, by its name: what `protocols.score_task` gives, of classes `transfer.score_transfer`.

    Args:
      encode: function from m sentences to an array [m, D], such as `BertFlow.encode` or the `encode` of
        sentence-transformers; called for up to 1024 different sentences of like length at a time.
      tasks: each with its gold scores, or classes.
      folds: of the classes' cross-validation.

    Raises:
      UserError: `encode` gives something else, embeddings that are not finite, or similarities that leave a score
        undefined; names task and sub-set.
    """
    distinct = list(dict.fromkeys(sentence for task in tasks for sentence in task.sentences))
    embeddings, rows = _embed(encode, distinct), {sentence: row for row, sentence in enumerate(distinct)}

    def embeddings_of(sentences: list[str]) -> np.ndarray:
        return embeddings[[rows[sentence] for sentence in sentences]]

    def similarities(task: SimilarityTask) -> list[np.ndarray]:
        return [
            cosines(embeddings_of(subset.sentences_a), embeddings_of(subset.sentences_b), task.place(subset))
            for subset in task.subsets
        ]

    return {
        task.name: score_transfer(task, embeddings_of, folds=folds)
        if isinstance(task, TransferTask)
        else score_task(task, similarities(task))
        for task in tasks
    }


def _embed(encode: Callable[[list[str]], npt.ArrayLike], sentences: list[str]) -> np.ndarray:
    """The embeddings [n, D] of n different sentences, in their order."""
    values = np.empty((len(sentences), 0))
    with tqdm(total=len(sentences), desc="embed", unit="sentence", disable=None) as bar:
        for rows in length_batches(np.array([len(sentence) for sentence in sentences]), _SENTENCES_PER_CALL):
            embeddings = np.asarray(encode([sentences[i] for i in rows]))
            if embeddings.ndim != 2 or len(embeddings) != len(rows):
                raise UserError(
                    f"embeddings: found an array of shape {list(embeddings.shape)} for {len(rows)} sentences, "
                    f"expected [{len(rows)}, D]"
                )
            if not values.size:
                values = np.empty((len(sentences), embeddings.shape[1]), embeddings.dtype)
            values[rows] = embeddings
            bar.update(len(rows))
    return values
