"""Sections of a report on analyses and on training, in words and figures as they are shown."""

from bert_flow_tf.evaluation.analysis_tables import ISOTROPY_MEASURES
from bert_flow_tf.evaluation.report_cells import (
    Cell,
    Section,
    Table,
    count,
    encoder_and_pooling,
    encoder_words,
    fixed,
    plots_of,
    signed,
)


def lexical_section(report: dict) -> Section:
    """Correlations with edit distance and gold, Table 6 beside them."""
    tables = []
    columns = ("Similarity", "Edit distance", "Table 6", "Δ Table 6", "Gold", "Table 6", "Δ Table 6")
    for record in report["lexical"]:
        close = record["close"]
        within = f"edit distance ≤ {close['max_distance']}, {count(close['pairs'])} pairs"
        rows = [_lexical_cells(row, "") for row in record["rows"]]
        rows += [_lexical_cells(row, within) for row in close["rows"]]
        caption = (
            f"Spearman × 100 of each similarity with edit distance and with gold; {record['task']}, {record['split']} "
            f"({count(record['pairs'])} pairs). {encoder_and_pooling(record['encoder'])}. Source: {record['source']}."
        )
        tables.append(Table(caption, columns, rows))
    note = (
        "Edit distance counts words. The paper's figures stand beside those of the dev set of STS-B; they differ in "
        "the encoder, except for the gold scores, where no encoder takes part."
    )
    return Section("lexical", "Lexical similarity", (note,), tables, plots_of(report, "lexical"))


def _lexical_cells(row, note):
    cells = [Cell(row["name"], note)]
    for column in ("edit distance", "gold"):
        one = row[column]
        cells += [Cell(fixed(one["value_x100"])), Cell(fixed(one["paper_x100"])), Cell(signed(one["difference_x100"]))]
    return cells


def words_section(report: dict) -> Section:
    """Norms and neighbours by frequency rank, Table 1 beside them."""
    tables = []
    for record in report["words"]:
        bins = [f"{one['first']:,} to {one['stop'] - 1:,}" for one in record["bins"]]
        rows = [[Cell("words"), Cell("here"), *(Cell(count(one["words"])) for one in record["bins"])]]
        for row in record["rows"]:
            rows.append([Cell(row["measure"]), Cell("here"), *(Cell(fixed(value)) for value in row["values"])])
            rows.append([Cell(row["measure"]), Cell("Table 1"), *(Cell(fixed(value)) for value in row["paper"])])
        caption = (
            f"Word embeddings by frequency rank: {count(record['ranked_words'])} words among "
            f"{count(record['pieces'])} pieces, ranked by {record['frequencies']}. Encoder: "
            f"{encoder_words(record['encoder'])}. Source: {record['source']}."
        )
        tables.append(Table(caption, ("Measure", "Of", *bins), rows, frozenset({0, 1})))
    note = "Table 1 is of BERT; its ranks were counted in other text."
    return Section("words", "Word frequency", (note,), tables, plots_of(report, "words"))


def isotropy_section(report: dict) -> Section:
    """Measures of isotropy without flow, with it, and of a standard normal."""
    tables = []
    for record in report["isotropy"]:
        measures = record["measures"]
        rows = [
            [Cell(words), *(Cell(fixed(one[key], digits)) for one in measures.values())]
            for words, key, digits in ISOTROPY_MEASURES
        ]
        # Of the embeddings as they are, under each density.
        blanks = [Cell("")] * (len(measures) - 1)
        rows += [
            [Cell(f"bits per dimension, {density}"), Cell(fixed(bits, 4)), *blanks]
            for density, bits in record["bits_per_dim"].items()
        ]
        caption = (
            f"Isotropy of {count(record['sentences'])} sentences of {record['task']}, {record['split']}. "
            f"{encoder_and_pooling(record['encoder'])}. Source: {record['source']}."
        )
        tables.append(Table(caption, ("Measure", *measures), rows))
    note = "The paper prints no such figures. Standard normal: as many draws, which is what isotropic looks like."
    return Section("isotropy", "Isotropy", (note,), tables, plots_of(report, "isotropy"))


def training_section(report: dict) -> Section:
    """What each run learned from, how long, and its own evaluation on dev."""
    measures = list(dict.fromkeys(name for record in report["trainings"] for name in record["on_dev"]))
    # The loss that counts is that of the whole split; the other is the estimator's own mean.
    measures = [name for name in measures if name not in ("global_step", "loss", "eval_loss_total")]
    rows = []
    for record in report["trainings"]:
        data = [
            record["learned_on"] or "",
            count(record["pairs"]),
            "" if record["seed"] is None else str(record["seed"]),
        ]
        seconds = fixed(record["seconds"], 1)
        on_dev = [Cell(fixed(record["on_dev"].get(name), 4)) for name in measures]
        what = record["pooling"] + (" + flow" if record["flow"] else "")
        rows.append(
            [Cell(record["source"], what), *map(Cell, data), Cell(count(record["steps"])), Cell(seconds), *on_dev]
        )
    columns = ("Run", "Learned on", "Pairs", "Seed", "Steps", "Seconds", *measures)
    table = Table("Training, and each run's own evaluation on dev.", columns, rows, frozenset({0, 1}))
    note = (
        "Names as in eval_results.txt; eval_loss_flow is the bits per dimension of both sentences of a pair, added. "
        "Seconds are of the steps alone."
    )
    return Section("training", "Training", (note,), [table] if rows else [])
