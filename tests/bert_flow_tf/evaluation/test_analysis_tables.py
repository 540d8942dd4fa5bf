"""The analyses' tables line up, and what is not known is a dash."""

from bert_flow_tf.evaluation import analysis_tables as tables
from bert_flow_tf.evaluation.paper import paper_tables
from bert_flow_tf.evaluation.word_frequency import RANK_BINS, RankBin


def test_lexical_table_puts_the_papers_figures_beside_ours_and_a_dash_where_there_are_none():
    row = {"edit distance": -24.552, "gold": 100.0}
    close = {"max_distance": 4, "pairs": 2, "rows": {"Gold similarity": {"edit distance": None, "gold": None}}}
    correlations = {"rows": {"Gold similarity": row}, "close": close | {"undefined": ["all 2 are equal"]}}
    text = tables.lexical_table(correlations, paper_tables()["table6_lexical"]["rows"]).splitlines()
    assert text[2].split() == ["Gold", "similarity", "-24.55", "-24.61", "100.00", "100.00"]
    assert text[3].split() == ["Gold", "similarity,", "distance", "≤", "4", "(2", "pairs)", "-", "-", "-", "-"]
    assert text[4] == "undefined: all 2 are equal"
    assert "-24.61" not in tables.lexical_table(correlations, {})


def test_words_table_has_a_column_for_each_of_the_papers_ranges():
    bins = [
        RankBin(first, stop, 0, None, dict.fromkeys((3, 5, 7)), dict.fromkeys((3, 5, 7))) for first, stop in RANK_BINS
    ]
    lines = tables.words_table(bins, paper_tables()["table1_word_embeddings"]).splitlines()
    assert lines[0].split()[2:] == ["(0,100)", "[100,500)", "[500,5K)", "[5K,10K)"]
    assert lines[3].split()[-4:] == ["-"] * 4
    assert lines[4].split() == ["paper", "0.95", "1.04", "1.22", "1.45"]
    # header, rule, words, and norm and twice three neighbours with the paper's row below each
    assert len(lines) == 3 + 2 * 7
