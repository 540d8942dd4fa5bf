"""Any encoder on any number of similarity tasks, each different sentence embedded once."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from bert_flow_tf.data.sts_sets import SimilarityTask
from bert_flow_tf.encoder.batches import length_batches
from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.protocols import cosines, score_task

_SENTENCES_PER_CALL = 1024


class SentenceEmbeddings:
    """Embeddings that are found by their sentence.

    Args:
      sentences: n different sentences.
      values: [n, D].

    Raises:
      UserError: `values` is no matrix of n rows.
    """

    def __init__(self, sentences: Sequence[str], values: npt.ArrayLike):
        self.values = np.asarray(values)
        if self.values.ndim != 2 or len(self.values) != len(sentences):
            raise UserError(
                f"embeddings: found an array of shape {list(self.values.shape)} for {len(sentences)} sentences, "
                f"expected [{len(sentences)}, D]"
            )
        self._rows = {sentence: row for row, sentence in enumerate(sentences)}

    def of(self, sentences: Iterable[str]) -> np.ndarray:
        """The embeddings [m, D] of m sentences, which may recur.

        Raises:
          KeyError: one of them was not embedded.
        """
        return self.values[[self._rows[sentence] for sentence in sentences]]


def embed_tasks(encode: Callable[[list[str]], npt.ArrayLike], tasks: Iterable[SimilarityTask]) -> SentenceEmbeddings:
    """Embeddings of every sentence of the tasks, each computed once.

    Args:
      encode: function from m sentences to an array [m, D], such as `BertFlow.encode` or the `encode` of
        sentence-transformers; called for up to 1024 sentences of like length at a time.
      tasks: `SimilarityTask`s.

    Raises:
      UserError: `encode` gives something else.
    """
    everything = (
        sentence
        for task in tasks
        for subset in task.subsets
        for sentences in (subset.sentences_a, subset.sentences_b)
        for sentence in sentences
    )
    distinct = list(dict.fromkeys(everything))
    values: np.ndarray | None = None
    with tqdm(total=len(distinct), desc="embed", unit="sentence", disable=None) as bar:
        for rows in length_batches(np.array([len(sentence) for sentence in distinct]), _SENTENCES_PER_CALL):
            part = [distinct[i] for i in rows]
            embeddings = SentenceEmbeddings(part, encode(part)).values
            if values is None:
                values = np.empty((len(distinct), embeddings.shape[1]), embeddings.dtype)
            values[rows] = embeddings
            bar.update(len(rows))
    return SentenceEmbeddings(distinct, np.empty((0, 0)) if values is None else values)


def score_tasks(tasks: Iterable[SimilarityTask], embeddings: SentenceEmbeddings) -> dict[str, dict]:
    """The scores of every task, as a dict from the task's name to what `protocols.score_task` gives.

    Raises:
      UserError: embeddings that are not finite, or similarities that leave a score undefined; it names task and
        sub-set.
    """
    return {task.name: score_task(task, _similarities(task, embeddings)) for task in tasks}


def _similarities(task: SimilarityTask, embeddings: SentenceEmbeddings) -> list[np.ndarray]:
    return [
        cosines(embeddings.of(subset.sentences_a), embeddings.of(subset.sentences_b), task.place(subset))
        for subset in task.subsets
    ]
