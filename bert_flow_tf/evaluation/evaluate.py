"""Any encoder on any number of similarity tasks, each different sentence embedded once."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from tqdm import tqdm

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.protocols import cosines, score_task
from bert_flow_tf.evaluation.sts_sets import SimilarityTask

_SENTENCES_PER_CALL = 1024


class SentenceEmbeddings:
    """Embeddings that are found by their sentence.

        embeddings = embed_tasks(model.encode, tasks)
        score_tasks(tasks, embeddings)
        score_tasks(tasks, embeddings.mapped(calibration.transform))  # the encoder does not run again

    Args:
      sentences: n different sentences.
      values: [n, D].

    Raises:
      UserError: `values` is no matrix of n rows.
    """

    def __init__(self, sentences: Sequence[str], values):
        values = np.asarray(values)
        if values.ndim != 2 or len(values) != len(sentences):
            raise UserError(
                f"embeddings: found an array of shape {list(values.shape)} for {len(sentences)} sentences, expected "
                f"[{len(sentences)}, D]"
            )
        self.sentences = list(sentences)
        self.values = values
        self._rows = {sentence: row for row, sentence in enumerate(self.sentences)}

    def __len__(self) -> int:
        return len(self.sentences)

    def of(self, sentences: Iterable[str]) -> np.ndarray:
        """The embeddings [m, D] of m sentences, which may recur.

        Raises:
          KeyError: one of them was not embedded.
        """
        return self.values[[self._rows[sentence] for sentence in sentences]]

    def mapped(self, function: Callable[[np.ndarray], np.ndarray]) -> "SentenceEmbeddings":
        """The same sentences with `function` of the embeddings, [n, D] to [n, D']."""
        return SentenceEmbeddings(self.sentences, function(self.values))


def distinct_sentences(tasks: Iterable[SimilarityTask]) -> list[str]:
    """Every sentence of the tasks once, in the order in which they come first."""
    return list(
        dict.fromkeys(
            sentence
            for task in tasks
            for subset in task.subsets
            for sentences in (subset.sentences_a, subset.sentences_b)
            for sentence in sentences
        )
    )


def embed_tasks(
    encode: Callable[[list[str]], np.ndarray],
    tasks: Iterable[SimilarityTask],
    show_progress_bar: bool | None = None,
) -> SentenceEmbeddings:
    """Embeddings of every sentence of the tasks, each computed once.

    Args:
      encode: function from m sentences to an array [m, D], such as `BertFlow.encode` or the `encode` of
        sentence-transformers; called for up to 1024 sentences of like length at a time.
      tasks: `SimilarityTask`s.
      show_progress_bar: None shows it on a terminal only.

    Raises:
      UserError: `encode` gives something else.
    """
    sentences = distinct_sentences(tasks)
    order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
    values = None
    hidden = None if show_progress_bar is None else not show_progress_bar
    with tqdm(total=len(sentences), desc="embed", unit="sentence", disable=hidden) as bar:
        for start in range(0, len(order), _SENTENCES_PER_CALL):
            rows = order[start : start + _SENTENCES_PER_CALL]
            part = [sentences[i] for i in rows]
            part = SentenceEmbeddings(part, encode(part)).values
            if values is None:
                values = np.empty((len(sentences), part.shape[1]), part.dtype)
            values[rows] = part
            bar.update(len(rows))
    return SentenceEmbeddings(sentences, values)


def score_tasks(tasks: Iterable[SimilarityTask], embeddings: SentenceEmbeddings) -> dict:
    """The figures of every task, as a dict from the task's name to what `protocols.score_task` gives.

    Raises:
      UserError: embeddings that are not finite, or similarities that leave a figure undefined; it names task and
        sub-set.
    """
    return {task.name: score_task(task, _similarities(task, embeddings)) for task in tasks}


def evaluate(
    encode: Callable[[list[str]], np.ndarray],
    tasks: Sequence[SimilarityTask],
    show_progress_bar: bool | None = None,
) -> dict:
    """The figures of an encoder on every task, see `embed_tasks` and `score_tasks`."""
    return score_tasks(tasks, embed_tasks(encode, tasks, show_progress_bar))


def _similarities(task, embeddings):
    return [
        cosines(embeddings.of(subset.sentences_a), embeddings.of(subset.sentences_b), task.place(subset))
        for subset in task.subsets
    ]
