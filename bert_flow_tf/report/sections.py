"""A report's sections: their words, their tables and where their figures come from; neither HTML nor Markdown yet."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from bert_flow_tf.report import tables
from bert_flow_tf.results.collect import SIDES, curve_groups
from bert_flow_tf.results.sources import KINDS
from bert_flow_tf.results.table import METRIC_NAMES, Table
from bert_flow_tf.results.verdict import Claim, is_of_original, verdict_table

_FINE_TUNING = {
    None: "",
    "NLI": ", fine-tuned on NLI",
    "masked language model": ", after masked language modelling",
    "other": ", fine-tuned",
    "unknown": ", its training is not recorded",
}
_FITTED = {"all": "on train, dev and test", "train": "on train alone"}
# Kind of what was measured -> heading, title of its tables, and a note.
_MEASURED = {
    "calibrations": (
        "Calibrations",
        "{x100} on {task}, {split} ({pairs:,} pairs), by calibration fitted {fitted}",
        "Table 5 is of BERT-base, mean of the last layer, whichever encoder is calibrated here; the difference is left "
        "empty for any other. k is chosen on dev among 1 to 20. The flow is learned on single sentences in a random "
        "order, the TF1 code's on pairs.",
    ),
    "lexical": (
        "Lexical similarity",
        "Spearman × 100 of each similarity with edit distance and with gold; {task}, {split} ({pairs:,} pairs)",
        "Edit distance counts words. The paper's figures stand beside those of the dev set of STS-B; they differ in "
        "the encoder, except for the gold scores, where no encoder takes part.",
    ),
    "words": (
        "Word frequency",
        "Word embeddings by frequency rank: {ranked_words:,} words among {pieces:,} pieces, ranked by {frequencies}",
        "Table 1 is of BERT; its ranks were counted in other text.",
    ),
    "isotropy": (
        "Isotropy",
        "Isotropy of {sentences:,} sentences of {task}, {split}",
        "The paper prints no such figures. Standard normal: the same number of draws, as isotropic embeddings look.",
    ),
}


@dataclasses.dataclass(frozen=True)
class Terms:
    """A list of terms and what is said of each, under a heading and a summary."""

    title: str
    summary: str
    pairs: Sequence[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading, paragraphs, tables, names of the plots that belong there, and lists of terms."""

    name: str
    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    plots: Sequence[str] = ()
    panels: Sequence[str] = ()  # Plots that are as narrow as a phone: side by side where there is room.
    terms: Sequence[Terms] = ()


def lead(report: dict) -> list[str]:
    """The paragraphs below the title of a report."""
    number = len(report["sources"])
    what = (
        f"What {number} result{'s' if number != 1 else ''} of BERT-flow say{'s' if number == 1 else ''}, beside the "
        f"figures of the paper ({report['paper']}) and of its authors' TensorFlow 1 code."
    )
    return [what, *([f"Made on {report['date']}."] if report["date"] else [])]


def sections(report: dict) -> list[Section]:
    """The sections of a report, as `bert_flow_tf.results.collect.collect` gives it, that have something to show."""
    found = [_verdict(report), _scores(report), _similarities(report), _seeds(report), *_measured(report)]
    found += [_training(report), _sources(report)]
    return [section for section in found if section.tables or section.panels or section.terms]


def _verdict(report: dict) -> Section:
    claims = [Claim(**claim) for claim in report["verdict"]]
    table = verdict_table(claims)
    shown = [dataclasses.replace(table, notes=())] if claims else []
    title = "Is it the same as the original?" if is_of_original(claims) else "Does the flow keep its equations?"
    return Section("verdict", title, table.notes, shown)


def _scores(report: dict) -> Section:
    places = list(dict.fromkeys(_place(row) for row in report["scores"]))
    by_encoder: dict[tuple[str, str], list[dict]] = {}
    by_task: dict[tuple, list[dict]] = {}
    # A run and its baseline below one another: by task, then in the order in which they came.
    for row in sorted(report["scores"], key=lambda row: places.index(_place(row))):
        by_encoder.setdefault((encoder_in_words(row["encoder"]), _x100(row["metric"])), []).append(row)
    for row in report["scores"]:
        if row["subsets"]:
            by_task.setdefault((row["task"], _x100(row["metric"]), tuple(row["subsets"])), []).append(row)
    shown = [
        _titled(tables.scores_table(rows), f"{metric} of the cosine. Encoder: {encoder}.")
        for (encoder, metric), rows in by_encoder.items()
    ]
    for (task, metric, _), rows in by_task.items():
        table = tables.subsets_table(rows, [encoder_in_words(row["encoder"]) for row in rows])
        shown.append(_titled(table, f"{task} by its sets: {metric}, the mean where there are several seeds."))
    original = report["original"]
    compared = (
        "An empty cell means that there is nothing comparable; Δ is this run less the other. Baseline: the same "
        "encoder and pooling without a flow, among these runs, or else the run's own embeddings before the flow, "
        "where they were scored with it. Paper: the row of Tables 2 to 4 with the same encoder, training and "
        "protocol, or of the README of the original where it says so. TF1 code: the original "
        f"({original['code']}, commit {original['commit']}, TensorFlow {original['versions']['tensorflow']}) on "
        "the same weights, pooling and flow; its random numbers differ, also for the same seed."
    )
    protocols = (
        "STS-12 to STS-16 are several sets each. wmean: mean over the sets, weighted by their pairs, which is the "
        "paper's protocol; mean: plain mean; all: all pairs together."
    )
    return Section("scores", "Scores", (compared, protocols), shown)


def _place(row: dict) -> tuple[str, str, str | None]:
    return row["task"], row["split"], row["protocol"]


def _similarities(report: dict) -> Section:
    shown = report["similarities"]
    names = [f"{name}-{i}" for i in range(1, len(shown) + 1) for name in (*SIDES, "histogram")]
    note = (
        "The same pairs before the flow and after it, of the first embedding of each task that was scored with a flow "
        "and without, and of its first seed. A dot is a pair; of more than 500 pairs, 500 are drawn, evenly spaced."
    )
    return Section("similarities", "Cosines before and after the flow", (note,), panels=names)


def _seeds(report: dict) -> Section:
    rows = [row for row in report["scores"] if row["this_run"]["n"] > 1]
    title = "Scores over seeds, × 100; the deviation is over n − 1."
    shown = [_titled(tables.seeds_table(rows), title)] if rows else []
    return Section("seeds", "Over seeds", tables=shown, plots=_plots(report, "seeds"))


def _measured(report: dict) -> Iterator[Section]:
    """Calibrations and analyses: a table each, whose title ends with where it comes from."""
    for kind, (heading, title, note) in _MEASURED.items():
        shown = []
        for record in report[kind]:
            metric, fitted = record.get("metric", ""), _FITTED.get(record.get("fit_on", ""), "")
            words = title.format(**record, x100=metric and _x100(metric), fitted=fitted)
            encoder = record["encoder"]
            pooling = f", {encoder['pooling']}" if encoder.get("pooling") else ""
            origin = f"Encoder: {encoder_in_words(encoder)}{pooling}. Source: {record['source']}."
            shown.append(_titled(tables.MEASURED_TABLES[kind](record), f"{words}. {origin}"))
        yield Section(kind, heading, (note,), shown, _plots(report, kind))


def _training(report: dict) -> Section:
    records = report["trainings"]
    note = (
        "Names as in eval_results.txt; eval_loss_flow is the bits per dimension of both sentences of a pair, added. "
        "Seconds are of the steps alone."
    )
    title = "Training, and each run's own evaluation on dev."
    shown = [_titled(tables.training_table(records), title)] if records else []
    panels = [f"curve-{i}" for i, _ in enumerate(curve_groups(report), start=1)]
    return Section("training", "Training", (note,), shown, panels=panels)


def _sources(report: dict) -> Section:
    """Encoder, data, protocol, seeds and versions of every source, where they are recorded."""
    terms = [Terms(f"{one['source']} ({KINDS[one['kind']]})", _summary(one), _terms(one)) for one in report["sources"]]
    return Section("sources", "Where the figures come from", terms=terms)


def _summary(source: Mapping) -> str:
    parts = [encoder_in_words(source["encoder"])] if source["encoder"] else []
    if source["pooling"]:
        parts.append(", ".join(source["pooling"]) + (" + flow" if source["flow"] else ""))
    if source["seeds"]:
        parts.append(f"seed{'s' if len(source['seeds']) > 1 else ''} {tables.listed(source['seeds'])}")
    return "; ".join(parts)


def _terms(source: Mapping) -> list[tuple[str, str]]:
    encoder, flow, length = source["encoder"] or {}, source["flow"], source["max_seq_length"]
    terms = [
        ("File" if source["kind"] in ("evaluation", "calibration") else "Folder", source["path"]),
        ("Encoder", encoder and encoder_in_words(encoder)),
        ("Handle", encoder.get("handle")),
        ("Fingerprint", encoder.get("fingerprint")),
        ("Pooling", ", ".join(source["pooling"])),
        ("Longest input", length and f"{length} word pieces"),
        ("Flow", flow and _flow_in_words(flow)),
        ("Seeds", tables.listed(source["seeds"])),
        ("Protocol", source["protocol"]),
        *(("Data", _data_in_words(data)) for data in source["data"]),
        ("Versions", ", ".join(f"{name} {version}" for name, version in source["versions"].items())),
    ]
    return [(term, text) for term, text in terms if text]


def _flow_in_words(flow: Mapping) -> str:
    parts = [flow["config"] or "a configuration of its own"]
    flags = flow["flags"] or {}
    if flow["learned_on"]:
        splits = {0: ", train", 1: ", all splits"}.get(flags.get("use_full_for_training", -1), "")
        parts.append(f"learned on {flow['learned_on']}{splits}")
    if flags.get("num_train_epochs") is not None:
        epochs = f"{flags['num_train_epochs']:g}"
        parts.append(f"{epochs} epoch{'' if epochs == '1' else 's'}")
    if flags.get("flow_learning_rate") is not None:
        parts.append(f"learning rate {flags['flow_learning_rate']:g}")
    if flags.get("flow_ddi"):
        parts.append("data-dependent initialisation")
    return "; ".join(parts)


def _data_in_words(data: Mapping) -> str:
    pairs = "" if data["pairs"] is None else f"{data['pairs']:,} pairs"
    digest = data["digest"] and f"digest {data['digest']}"
    return "; ".join(filter(None, (f"{data['task']}, {data['split']}", pairs, data["path"], digest)))


def encoder_in_words(encoder: Mapping) -> str:
    """An encoder's name, or the end of its handle, and what it was fine-tuned on."""
    words = encoder["name"] or encoder["handle"].rstrip("/").rpartition("/")[2]
    words += _FINE_TUNING[encoder["fine_tuning"]]
    if encoder["fine_tuning"] and encoder["fingerprint"]:
        words += f" ({encoder['fingerprint'][:8]})"
    return words


def _x100(metric: str) -> str:
    return f"{METRIC_NAMES[metric]} × 100"


def _titled(table: Table, title: str) -> Table:
    return dataclasses.replace(table, title=title)


def _plots(report: dict, kind: str) -> list[str]:
    """Names of the report's plots of one kind."""
    # The figures of `calibrations` are `calibration-1`, …
    return [name for name in report["figures"] if kind.startswith(name.rpartition("-")[0])]
