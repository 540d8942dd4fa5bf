"""A report's data as sections of tables, in words and figures as they are shown; neither HTML nor Markdown yet."""

import dataclasses
from collections.abc import Sequence

from bert_flow_tf.evaluation.report_provenance import KINDS

_METRICS = {"spearman": "Spearman × 100", "auc": "AUC × 100"}
_ISOTROPY_ROWS = (
    ("constant channels", "constant_channels", 0),
    ("mean pairwise cosine", "mean_cosine", 4),
    ("share of the mean vector", "mean_share", 4),
    ("share of the top direction", "top_share", 4),
    ("share of the top direction, mean subtracted", "centred_top_share", 4),
    ("participation ratio", "participation_ratio", 1),
    ("effective rank", "effective_rank", 1),
    ("partition ratio, min Z / max Z", "partition_ratio", 4),
)
_DEFAULT_FLOW = "config_l3_d3_w32"


@dataclasses.dataclass(frozen=True)
class Cell:
    """Text of a cell, and what is said of it in small."""

    text: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Table:
    """A table; the first cell of a row is its heading.

    Attributes:
      caption: what it is.
      columns: headings, one a column.
      words: numbers of the columns that hold words, which go to the left; the others hold figures.
      rows: lists of `Cell`.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: frozenset[int] = frozenset({0})


@dataclasses.dataclass(frozen=True)
class Terms:
    """A list of terms and what is said of each, under a heading and the short of it."""

    title: str
    note: str
    pairs: Sequence[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading, paragraphs, tables, names of the figures that belong there, and lists of terms."""

    name: str
    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[str] = ()
    terms: Sequence[Terms] = ()


def sections(report: dict) -> list[Section]:
    """The sections of a report that have something to show.

    Args:
      report: as `report.collect` gives it.
    """
    made = [
        _scores(report),
        _seeds(report),
        _calibrations(report),
        _lexical(report),
        _words(report),
        _isotropy(report),
        _trainings(report),
        _sources(report),
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


def _place(row):
    return row["task"], row["split"], row["protocol"]


def _score_cells(row):
    return [
        Cell(*_embedding(row)),
        Cell(row["task"]),
        Cell(row["split"]),
        Cell(row["protocol"] or ""),
        Cell(count(row["pairs"])),
        _figure(row["this_run"]),
        _figure(row["baseline"]) if row["baseline"] else Cell(""),
        Cell(signed(row["difference_from_baseline_x100"])),
        _published(row["paper"]),
        Cell(signed(row["difference_from_paper_x100"])),
        _original(row["original"]),
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
        if flow["learned_on"] and flow["learned_on"].upper() != row["task"]:
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
    columns += ("Table 8", "Its mean", "Its std", "Its median")
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
                Cell(paper.get("row", "")),
                *(Cell(fixed(paper.get(f"{key}_x100"))) for key in ("mean", "std", "median")),
            ]
        )
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
            f"{fitted}. {_encoder_and_pooling(record['encoder'])}. Source: {record['source']}."
        )
        columns = ("Calibration", "k", "Dev", "Test", "Δ none")
        columns += ("Table 5: BERT-base", "Its row", "Δ Table 5", "TF1 code", "Δ TF1")
        rows = []
        for row in record["rows"]:
            paper = row["paper"] or {}
            flow = f"{record['flow_config']}; seeds {_numbers(row['seeds'])}" if row["seeds"] else ""
            rows.append(
                [
                    Cell(row["method"], flow),
                    Cell("" if row["k"] is None else str(row["k"])),
                    Cell(fixed(row["dev_x100"])),
                    _figure(row),
                    Cell(signed(row["difference_from_none_x100"])),
                    Cell(fixed(paper.get("mean_x100"))),
                    Cell(paper.get("row", "")),
                    Cell(signed(row["difference_from_paper_x100"])),
                    _original(row["original"]),
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


def _lexical(report):
    tables = []
    columns = ("Similarity", "Edit distance", "Table 6", "Δ Table 6", "Gold", "Table 6", "Δ Table 6")
    for record in report["lexical"]:
        close = record["close"]
        within = f"edit distance ≤ {close['max_distance']}, {count(close['pairs'])} pairs"
        rows = [_lexical_cells(row, "") for row in record["rows"]]
        rows += [_lexical_cells(row, within) for row in close["rows"]]
        caption = (
            f"Spearman × 100 of each similarity with edit distance and with gold; {record['task']}, {record['split']} "
            f"({count(record['pairs'])} pairs). {_encoder_and_pooling(record['encoder'])}. Source: {record['source']}."
        )
        tables.append(Table(caption, columns, rows))
    note = (
        "Edit distance counts words. The paper's figures stand beside those of the dev set of STS-B; they differ in "
        "the encoder, except for the gold scores, where no encoder takes part."
    )
    return Section("lexical", "Lexical similarity", (note,), tables, _plots_of(report, "lexical"))


def _lexical_cells(row, note):
    cells = [Cell(row["name"], note)]
    for column in ("edit distance", "gold"):
        one = row[column]
        cells += [Cell(fixed(one["value_x100"])), Cell(fixed(one["paper_x100"])), Cell(signed(one["difference_x100"]))]
    return cells


def _words(report):
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
    return Section("words", "Word frequency", (note,), tables, _plots_of(report, "words"))


def _isotropy(report):
    tables = []
    for record in report["isotropy"]:
        measures = record["measures"]
        rows = [
            [Cell(words), *(Cell(f"{one[key]:.{digits}f}") for one in measures.values())]
            for words, key, digits in _ISOTROPY_ROWS
        ]
        # Of the embeddings as they are, under each density.
        blanks = [Cell("")] * (len(measures) - 1)
        rows += [
            [Cell(f"bits per dimension, {density}"), Cell(f"{bits:.4f}".replace("-", "−")), *blanks]
            for density, bits in record["bits_per_dim"].items()
        ]
        caption = (
            f"Isotropy of {count(record['sentences'])} sentences of {record['task']}, {record['split']}. "
            f"{_encoder_and_pooling(record['encoder'])}. Source: {record['source']}."
        )
        tables.append(Table(caption, ("Measure", *measures), rows))
    note = "The paper prints no such figures. Standard normal: as many draws, which is what isotropic looks like."
    return Section("isotropy", "Isotropy", (note,), tables, _plots_of(report, "isotropy"))


def _trainings(report):
    measures = list(dict.fromkeys(name for record in report["trainings"] for name in record["on_dev"]))
    # The loss that counts is that of the whole split; the other is the estimator's own mean.
    measures = [name for name in measures if name not in ("global_step", "loss", "eval_loss_total")]
    rows = []
    for record in report["trainings"]:
        data = [Cell(record["learned_on"]), Cell(count(record["pairs"])), Cell(str(record["seed"]))]
        seconds = "" if record["seconds"] is None else f"{record['seconds']:.1f}"
        on_dev = [Cell(_measured(record["on_dev"].get(name))) for name in measures]
        what = record["pooling"] + (" + flow" if record["flow"] else "")
        rows.append([Cell(record["source"], what), *data, Cell(count(record["steps"])), Cell(seconds), *on_dev])
    columns = ("Run", "Learned on", "Pairs", "Seed", "Steps", "Seconds", *measures)
    table = Table("Training, and each run's own evaluation on dev.", columns, rows, frozenset({0, 1}))
    note = "Names as in eval_results.txt; eval_loss_flow is in bits per dimension. Seconds are of the steps alone."
    return Section("training", "Training", (note,), [table] if rows else [])


def _measured(value):
    return "" if value is None else f"{value:.4f}".replace("-", "−")


def _sources(report):
    terms = [Terms(f"{one['source']} ({KINDS[one['kind']]})", _in_short(one), _terms(one)) for one in report["sources"]]
    return Section("sources", "Where the figures come from", terms=terms)


def _in_short(one):
    parts = [encoder_words(one["encoder"])] if one["encoder"] else []
    if one["pooling"]:
        parts.append(", ".join(one["pooling"]) + (" + flow" if one["flow"] else ""))
    if one["seeds"]:
        parts.append(f"seed{'s' if len(one['seeds']) > 1 else ''} {_numbers(one['seeds'])}")
    return "; ".join(parts)


def _terms(one):
    encoder, flow = one["encoder"], one["flow"]
    pairs = [("Folder" if one["kind"] not in ("evaluation", "calibration") else "File", one["path"])]
    if encoder:
        pairs.append(("Encoder", encoder_words(encoder)))
        pairs.append(("Handle", encoder["handle"]))
        if encoder["fingerprint"]:
            pairs.append(("Fingerprint", encoder["fingerprint"]))
    if one["pooling"]:
        pairs.append(("Pooling", ", ".join(one["pooling"])))
    if one["max_seq_length"]:
        pairs.append(("Longest input", f"{one['max_seq_length']} word pieces"))
    if flow:
        pairs.append(("Flow", _flow_words(flow)))
    if one["seeds"]:
        pairs.append(("Seeds", _numbers(one["seeds"])))
    if one["protocol"]:
        pairs.append(("Protocol", one["protocol"]))
    pairs += [("Data", _data_words(data)) for data in one["data"]]
    if one["versions"]:
        pairs.append(("Versions", ", ".join(f"{name} {version}" for name, version in one["versions"].items())))
    return pairs


def _flow_words(flow):
    parts = [flow["config"] or "a configuration of its own"]
    flags = flow["flags"] or {}
    if flow["learned_on"]:
        splits = {0: ", train", 1: ", all splits"}.get(flags.get("use_full_for_training"), "")
        parts.append(f"learned on {flow['learned_on']}{splits}")
    if flags.get("num_train_epochs") is not None:
        parts.append(f"{flags['num_train_epochs']:g} epochs at {flags.get('flow_learning_rate'):g}")
    if flags.get("flow_ddi"):
        parts.append("data-dependent initialisation")
    return "; ".join(parts)


def _data_words(data):
    parts = [f"{data['task']}, {data['split']}"]
    if data["pairs"] is not None:
        parts.append(f"{count(data['pairs'])} pairs")
    if data["path"]:
        parts.append(data["path"])
    if data["digest"]:
        parts.append(f"digest {data['digest']}")
    return "; ".join(parts)


def encoder_words(encoder: dict) -> str:
    """An encoder in words: its name, or the end of its handle, and what it was fine-tuned on."""
    words = encoder["name"] or encoder["handle"].rstrip("/").rpartition("/")[2]
    tuned = {
        None: "",
        "NLI": ", fine-tuned on NLI",
        "other": ", fine-tuned",
        "unknown": ", its training is not recorded",
    }
    if encoder["fine_tuning"] and encoder["fingerprint"]:
        return f"{words}{tuned[encoder['fine_tuning']]} ({encoder['fingerprint'][:8]})"
    return words + tuned[encoder["fine_tuning"]]


def _encoder_and_pooling(encoder):
    pooling = f", {encoder['pooling']}" if encoder["pooling"] else ""
    return f"Encoder: {encoder_words(encoder)}{pooling}"


def _plots_of(report, kind):
    return [name for name in report["figures"] if name.startswith(kind)]


def _figure(summary):
    """Mean, with deviation and median in small where there are several."""
    if summary["n"] == 1:
        return Cell(fixed(summary["mean_x100"]))
    text = f"{fixed(summary['mean_x100'])} ± {fixed(summary['std_x100'])}"
    return Cell(text, f"median {fixed(summary['median_x100'])}, n = {summary['n']}")


def _published(paper):
    if paper is None:
        return Cell("")
    source = "" if paper["source"] == "paper" else f" ({paper['source']})"
    return Cell(fixed(paper["mean_x100"]), f"{paper['row']}{source}")


def _original(original):
    if original is None:
        return Cell("")
    seeds = original["seeds"]
    note = f"seed{'s' if len(seeds) > 1 else ''} {_numbers(seeds)}" if seeds else ""
    return Cell(fixed(original["mean_x100"]), note)


def _numbers(values):
    return ", ".join(map(str, values))


def fixed(value: float | None) -> str:
    """The number with two decimals; nothing for None."""
    return "" if value is None else f"{value:.2f}".replace("-", "−")


def signed(value: float | None) -> str:
    """The difference with its sign and two decimals; nothing for None."""
    if value is None:
        return ""
    # Not +0.00 nor −0.00: there is no difference to two decimals.
    text = f"{value:+.2f}".replace("-", "−")
    return "0.00" if text[1:] == "0.00" else text


def count(value: int | None) -> str:
    """The number with commas; nothing for None."""
    return "" if value is None else f"{value:,}"
