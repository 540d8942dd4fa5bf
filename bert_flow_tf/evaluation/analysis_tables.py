"""The analyses' results as aligned text, the paper's figures beside them."""

from bert_flow_tf.evaluation.text_table import aligned, number

# Measure's words, attribute of `isotropy.Isotropy`, decimals.
ISOTROPY_MEASURES = (
    ("constant channels", "constant_channels", 0),
    ("mean pairwise cosine", "mean_cosine", 4),
    ("share of the mean vector", "mean_share", 4),
    ("share of the top direction", "top_share", 4),
    ("share of the top direction, mean subtracted", "centred_top_share", 4),
    ("participation ratio", "participation_ratio", 1),
    ("effective rank", "effective_rank", 1),
    ("partition ratio, min Z / max Z", "partition_ratio", 4),
)


def lexical_table(correlations, paper):
    """Table 6: correlations x100 with edit distance and gold, of all pairs and then of the close ones.

    Args:
      correlations: as `lexical.lexical_correlations` gives them.
      paper: the same rows of the paper; empty where they are not comparable.
    """
    columns = ("edit distance", "gold")
    close = correlations["close"]
    within = f", distance ≤ {close['max_distance']} ({close['pairs']:,} pairs)"
    lines = [["", *(cell for column in columns for cell in (column, "paper"))]]
    for suffix, rows, published in (("", correlations["rows"], paper), (within, close["rows"], {})):
        for name, row in rows.items():
            theirs = published.get(name, {})
            cells = (number(values.get(column)) for column in columns for values in (row, theirs))
            lines.append([f"{name}{suffix}", *cells])
    return "\n".join([aligned(lines), *(f"undefined: {reason}" for reason in close["undefined"])])


def words_table(bins, paper):
    """Table 1: a column for each range of ranks; below each row the paper's.

    Args:
      bins: list of `word_frequency.RankBin` for the paper's ranges.
      paper: `table1_word_embeddings` of `paper.paper_tables`.
    """
    lines = [
        ["frequency rank", *paper["rank_bins"]],
        ["words", *(f"{one.words:,}" for one in bins)],
        ["mean l2 norm", *(number(one.mean_l2_norm) for one in bins)],
        ["  paper", *map(number, paper["mean_l2_norm"])],
    ]
    for key, words in (("mean_knn_l2_distance", "NN l2 distance"), ("mean_knn_dot_product", "NN dot product")):
        for k in getattr(bins[0], key):
            lines.append([f"mean {k}-{words}", *(number(getattr(one, key)[k]) for one in bins)])
            lines.append(["  paper", *map(number, paper[key][str(k)])])
    return aligned(lines)


def isotropy_table(measures, reference, bits):
    """A row a measure, a column for each of `measures` and for the reference; then bits per dimension.

    Args:
      measures: dict of name -> `isotropy.Isotropy`.
      reference: `isotropy.Isotropy` of as many draws from a standard normal.
      bits: dict of density -> bits per dimension of the embeddings without flow.
    """
    columns = {**measures, "standard normal": reference}
    lines = [["", *columns]]
    lines += [
        [words, *(f"{getattr(one, key):.{digits}f}" for one in columns.values())]
        for words, key, digits in ISOTROPY_MEASURES
    ]
    blanks = [""] * (len(columns) - 1)
    lines += [[f"bits per dimension, {density}", f"{value:.4f}", *blanks] for density, value in bits.items()]
    return aligned(lines)
