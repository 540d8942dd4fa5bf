"""Correlate edit distance with gold scores and with cosines.

Source: Li et al. 2020, section 5.1, Table 6 and Figure 2. The distance is Levenshtein's over words, split at white
space. On the development set of the STS Benchmark this gives -24.55 for the gold scores, and the paper prints
-24.61; other ways to split give -20.27 to -26.26.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from bert_flow_tf.errors import UserError
from bert_flow_tf.evaluation.protocols import spearman
from bert_flow_tf.files.json_files import Count

CLOSE_DISTANCE = 4  # as in the paper's Figure 2
GOLD, BERT, FLOW = "Gold similarity", "BERT-induced similarity", "Flow-induced similarity"


def edit_distances(sentences_a: Sequence[str], sentences_b: Sequence[str]) -> np.ndarray:
    """Count inserted, deleted and replaced words of each pair: int64 [n]."""
    from rapidfuzz.distance import Levenshtein

    pairs = zip(sentences_a, sentences_b, strict=True)
    return np.asarray([Levenshtein.distance(a.split(), b.split()) for a, b in pairs], np.int64)


class Correlations(msgspec.Struct, frozen=True, kw_only=True):
    """Spearman's correlations of each similarity with "edit distance" and "gold", times 100."""

    pairs: Count
    rows: dict[str, dict[str, float | None]]  # None for an undefined correlation
    undefined: list[str]  # the reasons


def lexical_correlations(distances: np.ndarray, similarities: Mapping[str, np.ndarray]) -> Correlations:
    """Correlate edit distances [n] and gold scores with similarities [n] by name."""
    rows: dict[str, dict[str, float | None]] = {name: {} for name in similarities}
    undefined = []
    for name, row in rows.items():
        for column, other in (("edit distance", distances), ("gold", similarities[GOLD])):
            try:
                row[column] = 100 * spearman(similarities[name], other)
            except UserError as error:
                row[column] = None
                undefined.append(f"{name} with {column}: {error}")
    return Correlations(pairs=len(distances), rows=rows, undefined=undefined)
