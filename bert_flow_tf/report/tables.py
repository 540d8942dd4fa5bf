"""The tables of a report, and of the commands that print the same results: which figure stands where, without words.

Their arguments are parts of the dict that `bert_flow_tf.results.collect.collect` gives.
"""

from collections.abc import Sequence

from bert_flow_tf.data.sts_sets import task_title
from bert_flow_tf.results.table import NOT_COMPARABLE, Cell, Entry, Table, count, difference, fall, number
from glow.config import DEFAULT_CONFIG

# Words, key of the measure, decimals.
_ISOTROPY_MEASURES = (
    ("constant channels", "constant_channels", 0),
    ("mean pairwise cosine", "mean_cosine", 4),
    ("share of the mean vector", "mean_share", 4),
    ("share of the top direction", "top_share", 4),
    ("share of the top direction, mean subtracted", "centred_top_share", 4),
    ("participation ratio", "participation_ratio", 1),
    ("effective rank", "effective_rank", 1),
    ("partition ratio, min Z / max Z", "partition_ratio", 4),
)
# What a run's evaluation on dev holds beside its measures: the loss that counts is that of the whole split.
_NOT_MEASURED = ("global_step", "loss", "eval_loss_total")


def scores_table(rows: Sequence[dict]) -> Table:
    """A score per row, beside its baseline, the paper's and the original's."""
    columns = ["Embedding", "Task", "Split", "Protocol", "Pairs", "This run"]
    columns += ["Baseline", "Δ baseline", "Paper", "Δ paper", "TF1 code", "Δ TF1"]
    return Table(
        columns,
        [
            (
                *(_embedding(row), row["task"], row["split"], row["protocol"] or "", count(row["pairs"])),
                *(_score(row["this_run"]), _score(row["baseline"]), _difference(row, "baseline")),
                *(_published(row["paper"]), _difference(row, "paper")),
                *(_original(row["original"]), _difference(row, "original")),
            )
            for row in rows
        ],
    )


def subsets_table(rows: Sequence[dict], encoders: Sequence[str]) -> Table:
    """The scores of one task of several sets, a column per set; each row's encoder in words."""
    names = list(rows[0]["subsets"])
    cells: list[Sequence[Entry]] = []
    for row, encoder in zip(rows, encoders, strict=True):
        scores = [*(row["subsets"][name] for name in names), row["this_run"]["mean_x100"]]
        cells.append((_embedding(row), encoder, *map(number, scores)))
    return Table(("Embedding", "Encoder", *names, "wmean"), cells)


def seeds_table(rows: Sequence[dict]) -> Table:
    """Mean, deviation, median and range over seeds; the paper's Table 8 beside them where it is comparable."""
    cells = []
    for row in rows:
        this, paper = row["this_run"], row["paper_seeds"] or {}
        cells.append(
            (
                _embedding(row),
                f"{row['task']} {row['split']}",
                row["protocol"] or "",
                listed(row["seeds"]),
                number(this["n"], 0),
                *(number(this[f"{key}_x100"]) for key in ("mean", "std", "median")),
                *(number(end(this["values_x100"])) for end in (min, max)),
                paper.get("row"),
                *(number(paper.get(f"{key}_x100")) for key in ("mean", "std", "median")),
            )
        )
    columns = ["Embedding", "Task", "Protocol", "Seeds", "n", "Mean", "Std", "Median", "Smallest", "Largest"]
    return Table([*columns, "Table 8", "Its mean", "Its std", "Its median"], cells).without_empty_columns()


def calibration_table(record: dict) -> Table:
    """A calibration per row, beside Table 5 and the original."""
    columns = ["Calibration", "k", "Dev", "Test", "Δ none"]
    columns += ["Table 5: BERT-base", "Its row", "Δ Table 5", "TF1 code", "Δ TF1"]
    rows = []
    for row in record["rows"]:
        paper = row["paper"] or {}
        flow = f"{record['flow_config']}; seeds {listed(row['seeds'])}" if row["seeds"] else ""
        rows.append(
            (
                Cell(row["method"], note=flow),
                number(row["k"], 0),
                number(row["dev_x100"]),
                _score(row),
                _difference(row, "none"),
                _papers(paper.get("mean_x100"), row["difference_from_paper_x100"]),
                paper.get("row", ""),
                _difference(row, "paper"),
                _original(row["original"]),
                _difference(row, "original"),
            )
        )
    return Table(columns, rows)


def lexical_table(record: dict) -> Table:
    """Correlations with edit distance and gold, of all pairs and then of the close ones; Table 6 beside them."""
    close = record["close"]
    within = f"edit distance ≤ {close['max_distance']}, {close['pairs']:,} pairs"
    rows = []
    for note, of_pairs in (("", record["rows"]), (within, close["rows"])):
        for row in of_pairs:
            cells = [Cell(row["name"], note=note)]
            for column in ("edit distance", "gold"):
                one = row[column]
                off = one["difference_x100"]
                cells += [number(one["value_x100"]), _papers(one["paper_x100"], off), difference(off)]
            rows.append(cells)
    columns = ("Similarity", "Edit distance", "Table 6", "Δ Table 6", "Gold", "Table 6", "Δ Table 6")
    notes = [f"Undefined: {reason}." for reason in close["undefined"]]
    return Table(columns, rows, notes=notes).without_empty_columns()


def _papers(value: float | None, off: float | None) -> Cell:
    """A figure of the paper, and that it is of another encoder where nothing is set against it; 100 is of none."""
    return number(value, note=NOT_COMPARABLE if value not in (None, 100.0) and off is None else "")


def words_table(record: dict) -> Table:
    """Norms and neighbours of word embeddings, a column per range of frequency ranks; Table 1 below each row."""
    bins = [f"{one['first']:,} to {one['stop'] - 1:,}" for one in record["bins"]]
    rows: list[list[Entry]] = [["words", "here", *(count(one["words"]) for one in record["bins"])]]
    for row in record["rows"]:
        rows.append([row["measure"], "here", *map(number, row["values"])])
        rows.append([row["measure"], "Table 1", *map(number, row["paper"])])
    return Table(("Measure", "Of", *bins), rows)


def isotropy_table(record: dict) -> Table:
    """A measure per row, without the flow, with it, and of a standard normal; then bits per dimension."""
    measures = record["measures"]
    rows: list[list[Entry]] = [
        [words, *(number(one[key], digits) for one in measures.values())] for words, key, digits in _ISOTROPY_MEASURES
    ]
    # The bits are those of the embeddings without the flow, under each density.
    blanks = [None] * (len(measures) - 1)
    rows += [
        [f"bits per dimension, {density}", number(bits, 4), *blanks] for density, bits in record["bits_per_dim"].items()
    ]
    return Table(("Measure", *measures), rows)


MEASURED_TABLES = {
    "calibrations": calibration_table,
    "lexical": lexical_table,
    "words": words_table,
    "isotropy": isotropy_table,
}


def training_table(records: Sequence[dict]) -> Table:
    """What each run learned from, how long, and its own evaluation on dev."""
    measures = list(dict.fromkeys(name for record in records for name in record["on_dev"] if name not in _NOT_MEASURED))
    return Table(
        ("Run", "Learned on", "Pairs", "Seed", "Steps", "Seconds", *measures),
        [
            (
                Cell(record["source"], note=record["pooling"] + (" + flow" if record["flow"] else "")),
                record["learned_on"] or "",
                count(record["pairs"]),
                number(record["seed"], 0),
                count(record["steps"]),
                number(record["seconds"], 1),
                *(number(record["on_dev"].get(name), 4) for name in measures),
            )
            for record in records
        ],
    )


def listed(values: Sequence[int]) -> str:
    """The numbers, comma-separated."""
    return ", ".join(map(str, values))


def _difference(row: dict, other: str) -> Cell:
    off = row[f"difference_from_{other}_x100"]
    is_news = other in ("baseline", "none")
    return difference(off, note="a fall" if is_news and fall(off) else "", is_news=is_news)


def _embedding(row: dict) -> Cell:
    """A row's embedding, and as a note its name and what is not the default."""
    words, notes, flow = row["pooling"], [row["name"]], row["flow"]
    if flow is not None:
        words += " + flow"
        flags = flow["flags"] or {}
        if flow["config"] != DEFAULT_CONFIG:
            notes.append(flow["config"] or "other flow configuration")
        if flow["learned_on"] and task_title(flow["learned_on"]) != row["task"]:
            notes.append(f"flow learned on {flow['learned_on']}")
        elif flags.get("use_full_for_training") == 0:
            notes.append("train only")
        if flags.get("flow_ddi"):
            notes.append("data-dependent initialisation")
        if len(row["seeds"]) == 1:
            notes.append(f"seed {row['seeds'][0]}")
    return Cell(words, note="; ".join(notes))


def _score(summary: dict | None) -> Cell | None:
    """A mean, with its deviation and median where there are several values."""
    if summary is None:
        return None
    if summary["n"] == 1:
        return number(summary["mean_x100"])
    median = number(summary["median_x100"]).text(missing="", minus="−")
    return number(summary["mean_x100"], spread=summary["std_x100"], note=f"median {median}, n = {summary['n']}")


def _published(paper: dict | None) -> Cell | None:
    """The paper's figure, its row as a note."""
    if paper is None:
        return None
    source = "" if paper["source"] == "paper" else f" ({paper['source']})"
    return number(paper["mean_x100"], note=f"{paper['row']}{source}")


def _original(original: dict | None) -> Cell | None:
    """The original code's figure, its seeds as a note."""
    if original is None:
        return None
    seeds = original["seeds"]
    return number(original["mean_x100"], note=f"seed{'s' if len(seeds) > 1 else ''} {listed(seeds)}" if seeds else "")
