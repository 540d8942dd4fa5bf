"""How strongly similarity depends on the words alone: edit distance against gold, BERT's and the flow's similarity.

Source: Li et al. 2020, section 5.1, Table 6 and Figure 2. The distance is Levenshtein's over words, split at white
space as they stand in the file, case and attached punctuation included: on the development set of the STS Benchmark
this gives -24.55 for the gold scores, where the paper prints -24.61. Counting characters gives -20.27, punctuation as
words of its own -24.04, words without punctuation -26.26.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation import metrics

# The paper's Figure 2 highlights the pairs up to this distance.
CLOSE_DISTANCE = 4
GOLD, BERT, FLOW = "Gold similarity", "BERT-induced similarity", "Flow-induced similarity"


def edit_distances(sentences_a: Sequence[str], sentences_b: Sequence[str]) -> np.ndarray:
    """Words to insert, delete or replace to turn each sentence of `sentences_a` into its partner: int64 [n]."""
    from rapidfuzz.distance import Levenshtein

    distances = [Levenshtein.distance(a.split(), b.split()) for a, b in zip(sentences_a, sentences_b, strict=True)]
    return np.asarray(distances, np.int64)


def lexical_correlations(distances: npt.ArrayLike, similarities: Mapping[str, npt.ArrayLike]) -> dict:
    """Spearman's correlations x100 of each similarity with edit distance and with gold, as in Table 6.

    Args:
      distances: [n], as `edit_distances` gives them.
      similarities: dict of name -> [n]; `GOLD` is one of them.

    Returns:
      dict of `pairs` (n); `rows`: name -> {"edit distance", "gold"}; and `close`: the same two of the pairs with a
      distance of at most `CLOSE_DISTANCE`, where a correlation that is undefined is None and `undefined` holds a line
      that says why.

    Raises:
      UserError: a correlation over all pairs is undefined (see `metrics.spearman`).
    """
    distances = np.asarray(distances)
    values_of = {name: np.asarray(values, np.float64) for name, values in similarities.items()}
    close = distances <= CLOSE_DISTANCE
    rows: dict[str, dict[str, float]] = {}
    close_rows: dict[str, dict[str, float | None]] = {}
    undefined = []
    for name, values in values_of.items():
        rows[name], close_rows[name] = {}, {}
        for column, other in (("edit distance", distances), ("gold", values_of[GOLD])):
            rows[name][column] = 100 * _spearman(values, other, name, column)
            try:
                close_rows[name][column] = 100 * _spearman(values[close], other[close], name, column)
            except UserError as error:
                close_rows[name][column] = None
                undefined.append(str(error))
    of_close = {"max_distance": CLOSE_DISTANCE, "pairs": int(close.sum()), "rows": close_rows, "undefined": undefined}
    return {"pairs": len(distances), "rows": rows, "close": of_close}


def _spearman(values: np.ndarray, other: np.ndarray, name: str, column: str) -> float:
    try:
        return metrics.spearman(values, other)
    except UserError as error:
        raise UserError(f"{name} with {column}: {error}") from error
