"""Correlate edit distance with gold scores and with cosines.

Source: Li et al. 2020, section 5.1, Table 6 and Figure 2. The distance is Levenshtein's over words, split at white
space. On the development set of the STS Benchmark this gives -24.55 for the gold scores, and the paper prints
-24.61; other ways to split give -20.27 to -26.26.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.protocols import spearman

CLOSE_DISTANCE = 4  # as in the paper's Figure 2
GOLD, BERT, FLOW = "Gold similarity", "BERT-induced similarity", "Flow-induced similarity"


def edit_distances(sentences_a: Sequence[str], sentences_b: Sequence[str]) -> np.ndarray:
    """Count inserted, deleted and replaced words of each pair: int64 [n]."""
    from rapidfuzz.distance import Levenshtein

    pairs = zip(sentences_a, sentences_b, strict=True)
    return np.asarray([Levenshtein.distance(a.split(), b.split()) for a, b in pairs], np.int64)


def lexical_correlations(distances: npt.ArrayLike, similarities: Mapping[str, npt.ArrayLike]) -> dict:
    """Return `pairs`, `rows` and `close` of `results.records.Lexical`."""
    distances, gold = np.asarray(distances), np.asarray(similarities[GOLD], np.float64)
    is_close = distances <= CLOSE_DISTANCE
    rows: dict[str, dict[str, float]] = {}
    close: dict[str, Any] = {"max_distance": CLOSE_DISTANCE, "pairs": int(is_close.sum()), "rows": {}, "undefined": []}
    for name, similarity in similarities.items():
        rows[name], close["rows"][name] = {}, {}
        values = np.asarray(similarity, np.float64)
        for column, other in (("edit distance", distances), ("gold", gold)):
            rows[name][column] = 100 * spearman(values, other)
            try:
                close["rows"][name][column] = 100 * spearman(values[is_close], other[is_close])
            except UserError as error:
                close["rows"][name][column] = None
                close["undefined"].append(f"{name} with {column}: {error}")
    return {"pairs": len(distances), "rows": rows, "close": close}
