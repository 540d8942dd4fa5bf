"""Edit distance counts words, and Table 6's correlations are Spearman's."""

import numpy as np
import pytest

from bert_flow_tf.data.tasks import TASKS, gold_scores, read_split
from bert_flow_tf.evaluation import lexical


def test_distance_counts_words_to_insert_delete_or_replace():
    for a, b, distance in (
        ("a dog barks", "a  dog\tbarks ", 0),
        ("a dog barks", "a cat barks", 1),
        ("a dog barks loudly", "a dog", 2),
        ("dog a", "a dog", 2),
        # Case and attached punctuation make another word.
        ("A dog barks.", "a dog barks", 2),
        ("", "a dog", 2),
    ):
        assert lexical.edit_distances([a], [b]).tolist() == [distance], (a, b)


def test_gold_of_sts_b_dev_against_distance_is_the_papers(reference_data):
    # Table 6 prints -24.61; -24.55 was measured independently on the data in GLUE's columns.
    glue_dir = reference_data / "data" / "glue"
    examples = read_split(TASKS["sts-b"], glue_dir / "STS-B", "dev")
    distances = lexical.edit_distances(examples.sentences_a, examples.sentences_b)
    gold = gold_scores(TASKS["sts-b"], glue_dir, "dev")
    rows = lexical.lexical_correlations(distances, {lexical.GOLD: gold}).rows
    assert rows[lexical.GOLD]["edit distance"] == pytest.approx(-24.55, abs=0.01)
    assert rows[lexical.GOLD]["gold"] == pytest.approx(100)


def test_correlations_are_spearmans_or_none():
    distances = np.array([0, 1, 2, 4, 5, 9])
    gold = np.array([5.0, 4, 3, 2, 1, 0])
    similarity = np.array([1.0, 2, 3, 4, 0.5, 0])
    found = lexical.lexical_correlations(distances, {lexical.GOLD: gold, lexical.BERT: similarity})
    assert found.pairs == 6 and found.undefined == []
    assert found.rows[lexical.GOLD] == pytest.approx({"edit distance": -100, "gold": 100})
    # The ranks are 3, 4, 5, 6, 2, 1 against 1, ..., 6: 1 - 6 * (4 * 2^2 + 3^2 + 5^2) / (6 * 35).
    assert found.rows[lexical.BERT]["edit distance"] == pytest.approx(100 * (1 - 6 * 50 / 210))
    found = lexical.lexical_correlations(np.array([1, 2]), {lexical.GOLD: np.array([5.0, 5])})
    assert found.rows[lexical.GOLD] == {"edit distance": None, "gold": None}
    assert "all 2 predictions are 5" in found.undefined[0]
