"""A report's data as sections of tables, in words and figures as they are shown; neither HTML nor Markdown yet."""

from bert_flow_tf.evaluation.report_analysis_tables import (
    isotropy_section,
    lexical_section,
    training_section,
    words_section,
)
from bert_flow_tf.evaluation.report_cells import (
    Cell,
    Section,
    Table,
    count,
    encoder_and_pooling,
    encoder_words,
    figure_cell,
    fixed,
    listed,
    original_cell,
    published_cell,
    signed,
)
from bert_flow_tf.evaluation.report_rows import task_title
from bert_flow_tf.evaluation.report_terms import sources_section

_METRICS = {"spearman": "Spearman × 100", "auc": "AUC × 100"}
_DEFAULT_FLOW = "config_l3_d3_w32"


def sections(report: dict) -> list[Section]:
    """The sections of a report that have something to show.

    Args:
      report: as `report.collect` gives it.
    """
    made = [
        _scores(report),
        _seeds(report),
        _calibrations(report),
        lexical_section(report),
        words_section(report),
        isotropy_section(report),
        training_section(report),
        sources_section(report),
    ]
    return [section for section in made if section.tables or section.terms]


def _scores(report):
    groups, places = {}, {}
    for row in report["scores"]:
        places.setdefault(_place(row), len(places))
    # A run and its baseline below one another: by task, then in the order in which they came.
    for row in sorted(report["scores"], key=lambda row: places[_place(row)]):
        groups.setdefault((encoder_words(row["encoder"]), row["metric"]), []).append(row)
    columns = ("Embedding", "Task", "Split", "Protocol", "Pairs", "This run")
    columns += ("Baseline", "Δ baseline", "Paper", "Δ paper", "TF1 code", "Δ TF1")
    tables = [
        Table(
            f"{_METRICS[metric]} of the cosine. Encoder: {encoder}.",
            columns,
            [_score_cells(row) for row in rows],
            frozenset({0, 1, 2, 3}),
        )
        for (encoder, metric), rows in groups.items()
    ]
    tables += _subsets(report["scores"])
    original = report["original"]
    return Section(
        "scores",
        "Scores",
        (
            "An empty cell means that there is nothing comparable; Δ is this run less the other. Baseline: the same "
            "encoder and pooling without a flow, among these runs. Paper: the row of Tables 2 to 4 with the same "
            "encoder, training and protocol, or of the README of the original where it says so. TF1 code: the original "
            f"({original['code']}, commit {original['commit']}, TensorFlow {original['versions']['tensorflow']}) on "
            "the same weights, pooling and flow; its random numbers are others, also for the same seed.",
            "STS-12 to STS-16 are several sets each. wmean: mean over the sets, weighted by their pairs, which is the "
            "paper's protocol; mean: plain mean; all: all pairs together.",
        ),
        tables,
    )


def _subsets(rows):
    """A table for each task of several sets: a column a set."""
    tasks = {}
    for row in rows:
        if row["subsets"]:
            tasks.setdefault((row["task"], row["metric"], tuple(row["subsets"])), []).append(row)
    return [
        Table(
            f"{task} by its sets: {_METRICS[metric]}, the mean where there are several seeds.",
            ("Embedding", "Encoder", *names, "wmean"),
            [
                [
                    Cell(*_embedding(row)),
                    Cell(encoder_words(row["encoder"])),
                    *(Cell(fixed(row["subsets"][name])) for name in names),
                    Cell(fixed(row["this_run"]["mean_x100"])),
                ]
                for row in found
            ],
            frozenset({0, 1}),
        )
        for (task, metric, names), found in tasks.items()
    ]


def _place(row):
    return row["task"], row["split"], row["protocol"]


def _score_cells(row):
    return [
        Cell(*_embedding(row)),
        Cell(row["task"]),
        Cell(row["split"]),
        Cell(row["protocol"] or ""),
        Cell(count(row["pairs"])),
        figure_cell(row["this_run"]),
        figure_cell(row["baseline"]) if row["baseline"] else Cell(""),
        Cell(signed(row["difference_from_baseline_x100"])),
        published_cell(row["paper"]),
        Cell(signed(row["difference_from_paper_x100"])),
        original_cell(row["original"]),
        Cell(signed(row["difference_from_original_x100"])),
    ]


def _embedding(row):
    """A row's embedding in words, and in small its name and what is not the default."""
    text, notes = row["pooling"], [row["name"]]
    flow = row["flow"]
    if flow is not None:
        text += " + flow"
        flags = flow["flags"] or {}
        if flow["config"] != _DEFAULT_FLOW:
            notes.append(flow["config"] or "other flow configuration")
        if flow["learned_on"] and task_title(flow["learned_on"]) != row["task"]:
            notes.append(f"flow learned on {flow['learned_on']}")
        elif flags.get("use_full_for_training") == 0:
            notes.append("train only")
        if flags.get("flow_ddi"):
            notes.append("data-dependent initialisation")
        if len(row["seeds"]) == 1:
            notes.append(f"seed {row['seeds'][0]}")
    return text, "; ".join(notes)


def _seeds(report):
    rows = [row for row in report["scores"] if row["this_run"]["n"] > 1]
    columns = ("Embedding", "Task", "Protocol", "Seeds", "n", "Mean", "Std", "Median", "Smallest", "Largest")
    # Columns of the paper only where it has something to compare with.
    has_paper = any(row["paper_seeds"] for row in rows)
    columns += ("Table 8", "Its mean", "Its std", "Its median") if has_paper else ()
    cells = []
    for row in rows:
        this, paper = row["this_run"], row["paper_seeds"] or {}
        text, note = _embedding(row)
        cells.append(
            [
                Cell(text, note),
                Cell(f"{row['task']} {row['split']}"),
                Cell(row["protocol"] or ""),
                Cell(", ".join(map(str, row["seeds"]))),
                Cell(str(this["n"])),
                *(Cell(fixed(this[f"{key}_x100"])) for key in ("mean", "std", "median")),
                *(Cell(fixed(ends(this["values_x100"]))) for ends in (min, max)),
            ]
        )
        if has_paper:
            cells[-1] += [
                Cell(paper.get("row", "")),
                *(Cell(fixed(paper.get(f"{key}_x100"))) for key in ("mean", "std", "median")),
            ]
    table = Table("Scores over seeds, × 100; the deviation is over n − 1.", columns, cells, frozenset({0, 1, 2, 3, 10}))
    figures = [name for name in report["figures"] if name.startswith("seeds")]
    return Section("seeds", "Over seeds", tables=[table] if cells else [], figures=figures)


def _calibrations(report):
    tables = []
    for record in report["calibrations"]:
        metric = _METRICS[record["metric"]]
        fitted = {"all": "on train, dev and test", "train": "on train alone"}.get(record["fit_on"], record["fit_on"])
        caption = (
            f"{metric} on {record['task']}, {record['split']} ({count(record['pairs'])} pairs), by calibration fitted "
            f"{fitted}. {encoder_and_pooling(record['encoder'])}. Source: {record['source']}."
        )
        columns = ("Calibration", "k", "Dev", "Test", "Δ none")
        columns += ("Table 5: BERT-base", "Its row", "Δ Table 5", "TF1 code", "Δ TF1")
        rows = []
        for row in record["rows"]:
            paper = row["paper"] or {}
            flow = f"{record['flow_config']}; seeds {listed(row['seeds'])}" if row["seeds"] else ""
            rows.append(
                [
                    Cell(row["method"], flow),
                    Cell("" if row["k"] is None else str(row["k"])),
                    Cell(fixed(row["dev_x100"])),
                    figure_cell(row),
                    Cell(signed(row["difference_from_none_x100"])),
                    Cell(fixed(paper.get("mean_x100"))),
                    Cell(paper.get("row", "")),
                    Cell(signed(row["difference_from_paper_x100"])),
                    original_cell(row["original"]),
                    Cell(signed(row["difference_from_original_x100"])),
                ]
            )
        tables.append(Table(caption, columns, rows, frozenset({0, 6})))
    figures = [name for name in report["figures"] if name.startswith("calibration")]
    note = (
        "Table 5 is of BERT-base, mean of the last layer, whichever encoder is calibrated here; the difference is left "
        "empty for any other. k is chosen on dev among 1 to 20. The flow is learned on single sentences in a random "
        "order, the TF1 code's on pairs."
    )
    return Section("calibrations", "Calibrations", (note,), tables, figures)
