"""The paper's analyses of words: Tables 1 and 6, beside its figures."""

import dataclasses
from typing import Any

import msgspec
import numpy as np

from bert_flow_tf.calibration.comparison import NOT_COMPARABLE
from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import Count
from bert_flow_tf.common.records import ModelRecord, Result, made_by
from bert_flow_tf.common.table import Entry, Table, number, x100
from bert_flow_tf.report.lexical import (
    FrequencyTable,
    LexicalPairs,
    edit_distances,
    frequency_ranks,
    frequency_table,
)
from bert_flow_tf.report.paper import paper_tables
from bert_flow_tf.tasks.pair_files import Examples, Task
from bert_flow_tf.tasks.scores import WITH_FLOW, WITHOUT_FLOW
from bert_flow_tf.vectors.similarities import cosines_of_pairs

GOLD = "gold"
_PAPERS_ROWS = {
    GOLD: "Gold similarity",
    WITHOUT_FLOW: "BERT-induced similarity",
    WITH_FLOW: "Flow-induced similarity",
}
# The figures of Table 6 are of this many pairs, STS-B's dev set.
_PAPERS_PAIRS = 1500


class Correlations(msgspec.Struct, frozen=True, kw_only=True):
    """Spearman's correlations of a similarity."""

    edit_distance: float
    gold: float


class Analyses(Result, frozen=True, kw_only=True, tag="analyses"):
    """Results of `bert-flow analyses`.

    Attributes:
      model: with the flow, if it has one.
      lexical: by similarity, Table 6; empty if it was not asked for.
      frequency: by measure, a number per range of ranks, None without words; Table 1.
    """

    model: ModelRecord
    task: str | None = None
    split: str | None = None
    pairs: Count = 0
    lexical: dict[str, Correlations] = msgspec.field(default_factory=dict)
    ranks: list[str] = msgspec.field(default_factory=list)
    frequency: dict[str, list[float | None]] = msgspec.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class WordTable:
    """Word embeddings [V, D], their words' ranks [V], and Table 1."""

    frequency: FrequencyTable
    embeddings: np.ndarray
    ranks: np.ndarray


def word_table(model: Any) -> WordTable:
    """Return a BERT's word embeddings by frequency.

    Raises:
      UserError: the encoder is no BERT, or has no English words.
    """
    table = model.encoder.network.word_embeddings
    if not model.source.is_bert or table is None:
        raise UserError("--tables: found 1 with a SavedModel that is no BERT, expected 6")
    vocab = model.source.bert.vocab
    embeddings = table.numpy()[: len(vocab)]
    ranks = frequency_ranks(vocab)
    if not ranks.any():
        raise UserError("--tables: found 1 with an encoder without English words, expected 6")
    return WordTable(frequency_table(embeddings, ranks), embeddings, ranks)


def lexical_pairs(model: Any, pairs: Examples) -> LexicalPairs:
    """Return each similarity of scored pairs, and their edit distances."""
    from bert_flow_tf.tasks.scoring import sides

    gold = np.asarray(pairs.labels, np.float64)
    first = sides(model, model.encode_pooled(pairs.sentences_a))
    second = sides(model, model.encode_pooled(pairs.sentences_b))
    similarities = {name: cosines_of_pairs(first[name], second[name], name) for name in first}
    distances = edit_distances(pairs.sentences_a, pairs.sentences_b)
    return LexicalPairs(distances, gold, {GOLD: gold, **similarities})


def analysis(
    model: Any,
    words: WordTable | None,
    pairs: LexicalPairs | None,
    *,
    task: Task,
    split: str,
) -> Analyses:
    """Return the record of Table 1, of Table 6, or of both."""
    found = Analyses(made_by=made_by("bert-flow analyses"), model=model.record)
    if words is not None:
        found = msgspec.structs.replace(
            found, ranks=words.frequency.names, frequency=_finite(words.frequency)
        )
    if pairs is not None:
        found = msgspec.structs.replace(
            found,
            task=task.name,
            split=split,
            pairs=len(pairs.gold),
            lexical=_correlations(pairs),
        )
    return found


def _correlations(pairs: LexicalPairs) -> dict[str, Correlations]:
    """Return each similarity's correlations."""
    return {
        name: Correlations(edit_distance=pairs.correlation(name), gold=pairs.agreement(name))
        for name in pairs.similarities
    }


def _finite(table: FrequencyTable) -> dict[str, list[float | None]]:
    """Return the measures, None for a range of ranks without words."""
    return {
        name: [None if value != value else value for value in values]
        for name, values in table.measures.items()
    }


def _lexical_table(found: Analyses, words: str) -> Table:
    """Return Table 6: correlations with the edit distance and the gold scores."""
    paper = paper_tables()["table6_lexical"]["rows"]
    has_papers_pairs = (found.task, found.split, found.pairs) == ("sts-b", "dev", _PAPERS_PAIRS)
    rows: list[list[Entry]] = []
    for name, one in found.lexical.items():
        theirs = paper[_PAPERS_ROWS[name]] if has_papers_pairs else {}
        figures = [
            x100(one.edit_distance),
            number(theirs.get("edit distance")),
            x100(one.gold),
            number(theirs.get("gold")),
        ]
        rows.append([name, *figures])
    columns = ("similarity", "edit distance", "paper (distance)", "gold", "paper (gold)")
    return Table(columns, rows, words, _notes(found) if has_papers_pairs else ())


def _frequency_rows(found: Analyses) -> Table:
    """Return Table 1: word embeddings by the rank of their word."""
    paper = paper_tables()["table1_word_embeddings"]["rows"]
    rows: list[list[Entry]] = []
    for name, values in found.frequency.items():
        rows.append([name, "here", *map(number, values)])
        rows.append([name, "paper", *map(number, paper[name])])
    return Table(("word embeddings by rank", "of", *found.ranks), rows, notes=_notes(found))


def analyses_tables(found: Analyses, *, words: str = "") -> list[Table]:
    """Return the tables that the results have; `words` is Table 6's title."""
    tables = [_frequency_rows(found)] if found.frequency else []
    if found.lexical:
        tables.append(_lexical_table(found, words))
    return tables


def _notes(found: Analyses) -> list[str]:
    return [] if found.model.encoder.name == "base" else [f"paper: {NOT_COMPARABLE}."]
