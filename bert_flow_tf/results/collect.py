"""All that a report shows of any number of results: collected, and set beside what is comparable."""

import math
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from bert_flow_tf.data.sts_sets import task_title
from bert_flow_tf.errors import UserError
from bert_flow_tf.files.json_files import FORMAT_VERSION
from bert_flow_tf.files.reading import read_file, read_text
from bert_flow_tf.paper.figures import original_runs, paper_tables
from bert_flow_tf.results.comparisons import (
    UNKNOWN,
    baseline_of,
    compared,
    compared_calibration,
    encoder_in_report,
    flow_in_report,
)
from bert_flow_tf.results.records import (
    REPORT,
    CalibrationRow,
    Calibrations,
    Isotropy,
    Lexical,
    LexicalCorrelations,
    Metric,
    Reproduction,
    Result,
    Scores,
    SeedScores,
    Verification,
    Words,
)
from bert_flow_tf.results.rows import Row, score_rows, summary_x100
from bert_flow_tf.results.sources import Source
from bert_flow_tf.results.table import METRIC_NAMES
from bert_flow_tf.results.verdict import verdict
from bert_flow_tf.runs.folder import DEV_RESULTS_FILE
from bert_flow_tf.runs.record import Model, TrainingResults

_PAPER = "Li et al., On the Sentence Embeddings from Pre-trained Language Models, EMNLP 2020"
# Kind of an analysis -> its plot, beside its results, and the plot's caption.
_PLOTS = {
    "lexical": (
        "lexical.svg",
        "Edit distance over each similarity; pairs up to an edit distance of 4 are highlighted, as in Figure 2.",
    ),
    "words": (
        "words.svg",
        "Word embeddings along their first two singular directions, coloured by frequency rank, as in Figure 1.",
    ),
    "isotropy": (
        "spectrum.svg",
        "Singular spectra, as they are and with the mean subtracted; a flat line is isotropic.",
    ),
}
# Side of a flow -> its words.
SIDES = {"before": "before the flow", "after": "after the flow"}
# Loss that a run learned from -> its words.
LOSSES = {
    "flow_loss": "the flow's loss in bits per dimension, of both sentences of a pair, added",
    "supervised_loss": "the supervised loss",
}
# Of one plot of learning curves.
_LINES = 6
# The gold scores' correlation with edit distance is a fact of the data: no encoder takes part in it.
_WITHOUT_ENCODER = ("Gold similarity", "edit distance")


def collect(sources: Sequence[Source], title: str, date: str | None = None) -> dict:
    """All that a report shows, ready for JSON; scores and differences, of keys that end in `_x100`, are times 100.

    It holds `kind`, `format_version`, `title`, `date` (a day, or None), `paper` and `original` (what is compared with),
    `sources`, `verdict` (dicts of a `verdict.Claim`), `scores` (`comparisons.compared`), `similarities` (of one row of
    each task, before the flow and after it), `calibrations`, `lexical`, `words`, `isotropy`, `trainings`, `figures`:
    from a plot's name on the page to its caption, and `alternatives`: from the names of some to what they show.

    Raises:
      UserError: results do not fit each other, or a run's evaluation cannot be read.
    """
    rows = score_rows(sources)
    scores = compared(rows)
    report: dict[str, Any] = {
        "kind": REPORT,
        "format_version": FORMAT_VERSION,
        "title": title,
        "date": date,
        "paper": _PAPER,
        "original": {key: original_runs()[key] for key in ("code", "commit", "versions")},
        "sources": [_origin(source, [row for row in rows if row.source == source.label]) for source in sources],
        "verdict": [claim._asdict() for claim in verdict(_verifications(sources), scores)],
        "scores": scores,
        "similarities": _similarities(rows),
        **{key: [] for key in ("calibrations", "lexical", "words", "isotropy", "trainings")},
    }
    for source in sources:
        for result in source.results.values():
            if isinstance(result, TrainingResults):
                report["trainings"].append(_training(result, source))
            elif isinstance(result, Calibrations):
                report["calibrations"].append(_calibrations(result, source))
            elif isinstance(result, Lexical | Words | Isotropy):
                report[source.kind].append({"source": source.label, **analysis(result)})
    return report | {"figures": _figures(report), "alternatives": _alternatives(report)}


def _similarities(rows: Sequence[Row]) -> list[dict]:
    """What plots show of the cosines before a flow and after it, of the first row of each task that has both."""
    found: dict[tuple, dict] = {}
    keys = ("source", "name", "task", "split", "metric", "protocol", "pairs")
    for row in rows:
        plain = baseline_of(row, rows)
        if row.agreement is None or plain is None or plain.agreement is None:
            continue
        of = {key: getattr(row, key) for key in keys} | {"pooling": row.model.pooling, "seeds": row.seeds[:1]}
        sides = {
            side: {"score_x100": one.values_x100[0], **msgspec.to_builtins(one.agreement)}
            for side, one in zip(SIDES, (plain, row), strict=True)
        }
        found.setdefault((row.task, row.split), of | sides)
    return list(found.values())


def _verifications(sources: Sequence[Source]) -> list[Verification]:
    return [one for source in sources for one in source.results.values() if isinstance(one, Verification)]


def analysis(result: Lexical | Words | Isotropy) -> dict:
    """What a report and the console show of an analysis, the paper's figures beside its own."""
    if isinstance(result, Lexical):
        return _lexical(result)
    return _words(result) if isinstance(result, Words) else _isotropy(result)


def _lexical(result: Lexical) -> dict:
    """Correlations, with Table 6's beside them on the dev set of STS-B.

    A row holds `name`, and for "edit distance" and "gold" a dict of `value_x100`, `paper_x100` and `difference_x100`.
    """
    on_paper = (task_title(result.task), result.split, result.pairs) == ("STS-B", "dev", 1500)
    paper = paper_tables()["table6_lexical"]["rows"] if on_paper else {}
    close = result.close
    return {
        **_analysed_data(result),
        "pairs": result.pairs,
        "rows": [_lexical_row(name, row, paper.get(name, {})) for name, row in result.rows.items()],
        "close": {
            "max_distance": close.max_distance,
            "pairs": close.pairs,
            "rows": [_lexical_row(name, row, {}) for name, row in close.rows.items()],
            "undefined": close.undefined,
        },
    }


def _analysed_data(result: Lexical | Isotropy) -> dict:
    return {"encoder": _analysed(result.model), "task": task_title(result.task), "split": result.split}


def _lexical_row(name: str, row: LexicalCorrelations, paper: dict) -> dict:
    cells = {}
    for column, value in msgspec.to_builtins(row).items():
        theirs = paper.get(column)
        comparable = (name, column) == _WITHOUT_ENCODER and value is not None and theirs is not None
        difference = value - theirs if comparable else None
        cells[column] = {"value_x100": value, "paper_x100": theirs, "difference_x100": difference}
    return {"name": name, **cells}


def _words(result: Words) -> dict:
    """Statistics by frequency rank, with Table 1's beside them: a row holds `measure`, `values` and `paper` by bin."""
    paper, bins = paper_tables()["table1_word_embeddings"], result.bins
    rows = [("mean ℓ2 norm", [one.mean_l2_norm for one in bins], paper["mean_l2_norm"])]
    for key, title in (("mean_knn_l2_distance", "NN ℓ2 distance"), ("mean_knn_dot_product", "NN dot product")):
        for k in getattr(bins[0], key):
            values = [getattr(one, key).get(k) for one in bins]
            rows.append((f"mean {k}-{title}", values, paper[key].get(str(k), [None] * len(bins))))
    return {
        "encoder": encoder_in_report(result.encoder),
        "pieces": result.pieces,
        "ranked_words": result.ranked_words,
        "frequencies": result.frequencies,
        "bins": [{"first": one.first, "stop": one.stop, "words": one.words} for one in bins],
        "rows": [dict(zip(("measure", "values", "paper"), row, strict=True)) for row in rows],
    }


def _isotropy(result: Isotropy) -> dict:
    measures = result.measures | {"standard normal": result.reference}
    without = ("embeddings", "channels", "spectrum", "centred_spectrum")
    return {
        **_analysed_data(result),
        "sentences": result.sentences,
        "measures": {
            name: {key: value for key, value in vars(one).items() if key not in without}
            for name, one in measures.items()
        },
        "bits_per_dim": result.bits_per_dim,
    }


def _calibrations(result: Calibrations, source: Source) -> dict:
    """Scores of each calibration times 100, with Table 5's and the original code's beside them."""
    rows = [_calibration_row(row, result.metric, source.path) for row in result.rows]
    unknown = _made_elsewhere(result.embeddings or "unknown") | {"pooling": None, "max_seq_length": None}
    return {
        "source": source.label,
        "encoder": _analysed(result.model) if result.model else unknown,
        "task": task_title(result.data.task),
        "split": "test",
        "pairs": result.data.pairs.test,
        "metric": result.metric,
        "fit_on": result.fit_on,
        "flow_config": result.flow_model_config,
        "rows": compared_calibration(result, rows),
    }


def _calibration_row(row: CalibrationRow, metric: Metric, path: pathlib.Path) -> dict:
    runs: Sequence[CalibrationRow | SeedScores] = row.by_seed or [row]
    scores = [getattr(one, metric) for one in runs]
    if None in (*scores, mean := getattr(row, metric)):
        raise UserError(f"{path}: rows: found {row.method} without {metric}, expected the scores of every seed")
    return {
        "method": row.method,
        "k": row.k,
        "dev_x100": None if row.dev is None else 100 * row.dev,
        **summary_x100([100 * score for score in scores]),
        # As it was computed there.
        "mean_x100": 100 * mean,
        "seeds": [one.seed for one in row.by_seed],
    }


def _training(result: TrainingResults, source: Source) -> dict:
    """What a run learned on, its steps and seconds of these, and its own evaluation on dev; None if not recorded."""
    model, stage, training = result.model, result.stages.get("train"), result.model.training
    task = training and training.task
    return {
        "source": source.label,
        "pooling": model.pooling,
        "flow": flow_in_report(model.flow),
        "learned_on": task and task_title(task),
        "seed": model.seed,
        "pairs": result.data.num_examples,
        "steps": result.steps,
        "seconds": stage and stage.seconds,
        "curve": msgspec.to_builtins(result.curve),
        "on_dev": _evaluation_lines(source.path / DEV_RESULTS_FILE),
    }


def _evaluation_lines(path: pathlib.Path) -> dict[str, float]:
    """The figures of `eval_results.txt` by name; none where a run has not evaluated."""
    if not path.is_file():
        return {}
    figures = {}
    for number, line in enumerate(read_text(path, "an evaluation of run_siamese").splitlines(), start=1):
        # Without labels on dev a correlation is written as nan: nothing to show.
        if re.fullmatch(r"eval_\w+ = nan", line):
            continue
        match = re.fullmatch(r"(\w+) = (-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)", line, re.ASCII)
        if match is None or not math.isfinite(float(match[2])):
            raise UserError(f"{path}, line {number}: found {line!r}, expected a name, = and a finite number")
        figures[match[1]] = float(match[2])
    return figures


def _analysed(model: Model) -> dict:
    return encoder_in_report(model.encoder) | {"pooling": model.pooling, "max_seq_length": model.max_seq_length}


def _made_elsewhere(embeddings: str) -> dict:
    return {"name": None, "handle": embeddings, "fingerprint": None, "fine_tuning": UNKNOWN}


def _origin(source: Source, rows: Sequence[Row]) -> dict:
    """Where a source's figures come from: model, seeds, protocol, data and versions."""
    result, results = source.result, source.results.values()
    if isinstance(result, Reproduction):
        models = [run.model for task in result.tasks.values() for row in task.rows.values() for run in row.runs]
    else:
        models = [model] if (model := getattr(result, "model", None)) else []
    encoder = next((encoder_in_report(one.encoder) for one in models), None)
    poolings = [row.model.pooling for row in rows] or [one.pooling for one in models[:1]]
    flow = next((one.flow for one in [row.model for row in rows] + models[:1] if one.flow), None)
    seeds = [seed for row in rows for seed in row.seeds] or [one.seed for one in models[:1] if one.seed is not None]
    protocol = None
    if any(isinstance(one, Scores | Reproduction) for one in results):
        protocol = "cosine; wmean, mean and all where a task is several sets"
    if isinstance(result, Words):
        encoder = encoder_in_report(result.encoder)
    elif isinstance(result, Calibrations):
        if result.embeddings and not models:
            encoder = _made_elsewhere(result.embeddings)
        # The model's own flow takes no part; those that were fitted have these seeds.
        flow, seeds = None, result.seeds
        fitted = {"all": "train, dev and test", "train": "train"}[result.fit_on]
        protocol = f"cosine; all pairs of the test split; calibrations fitted on {fitted}"
    return {
        "source": source.label,
        "kind": source.kind,
        "path": str(source.path),
        "encoder": encoder,
        "pooling": list(dict.fromkeys(poolings)),
        "max_seq_length": models[0].max_seq_length if models else None,
        "flow": flow_in_report(flow),
        "seeds": sorted(set(seeds)),
        "protocol": protocol,
        "data": [data for one in results for data in _data(one)],
        "versions": dict(sorted(result.made_by.libraries.items())),
    }


def _data(result: Result) -> list[dict]:
    """Dicts of `task`, `split`, `pairs`, `path` and `digest`, of what a result was learned or measured on."""
    keys = ("task", "split", "pairs", "path", "digest")
    found: list[tuple] = []
    if isinstance(result, TrainingResults):
        training = result.model.training
        if training is not None and training.task is not None:
            whole = training.settings.get("use_full_for_training") == 1
            split = "train, dev and test, to learn from" if whole else "train, to learn from"
            learned = result.data
            found = [(task_title(training.task), split, learned.num_examples, None, learned.fingerprint)]
    elif isinstance(result, Scores | Reproduction):
        found = [(task.title, task.split, task.pairs, task.source, None) for task in result.tasks.values()]
    elif isinstance(result, Calibrations):
        data = result.data
        found = [
            (data.task, split, pairs, data.glue_dir, data.sentences_sha256 if split == "test" else None)
            for split, pairs in msgspec.structs.asdict(data.pairs).items()
        ]
    elif isinstance(result, Lexical | Isotropy):
        found = [(result.task, result.split, result.pairs if isinstance(result, Lexical) else None, None, None)]
    return [dict(zip(keys, one, strict=True)) for one in found]


def _figures(report: dict) -> dict[str, str]:
    figures = {}
    for number, rows in enumerate(seed_groups(report), start=1):
        metric, task, split = METRIC_NAMES[rows[0]["metric"]], rows[0]["task"], rows[0]["split"]
        figures[f"seeds-{number}"] = (
            f"{metric} × 100 of every seed on {task}, {split}; the bar is the mean, the line its 95% interval."
        )
    for number, one in enumerate(report["similarities"], start=1):
        place = f"{one['task']}, {one['split']}; {METRIC_NAMES[one['metric']]} × 100"
        protocol = f", {one['protocol']}" if one["protocol"] else ""
        for side, words in SIDES.items():
            embedding = one["pooling"] + "".join(f", seed {seed}" for seed in one["seeds"] if side == "after")
            score = f"{one[side]['score_x100']:.2f}{protocol}"
            figures[f"{side}-{number}"] = f"Cosine over gold score {words}: {embedding}, {place} {score}."
        spread = "; ".join(
            f"{words} mean {one[side]['mean']:.2f}, standard deviation {one[side]['std']:.2f}"
            for side, words in SIDES.items()
        )
        figures[f"histogram-{number}"] = f"Cosines of all {one['pairs']:,} pairs: {spread}."
    for number, (loss, records) in enumerate(curve_groups(report), start=1):
        runs = "" if len(records) == 1 else f" of {len(records)} runs"
        figures[f"curve-{number}"] = f"Learning curve{runs}: {LOSSES[loss]}, over steps."
    for number, one in enumerate(report["calibrations"], start=1):
        figures[f"calibration-{number}"] = f"Calibrations; every seed of the flow is a dot. Source: {one['source']}."
    for kind, (_, caption) in _PLOTS.items():
        for number, one in enumerate(report[kind], start=1):
            figures[f"{kind}-{number}"] = f"{caption} Source: {one['source']}."
    return figures


def _alternatives(report: dict) -> dict[str, str]:
    """What plots show, for those who do not see them."""
    alternatives = {}
    for number, one in enumerate(report["similarities"], start=1):
        for side, words in SIDES.items():
            values = one[side]["similarities"]
            alternatives[f"{side}-{number}"] = (
                f"Scatter plot {words}: a dot for each of {len(values):,} pairs, gold score to the right, cosine up, "
                f"from {min(values):.2f} to {max(values):.2f}."
            )
        alternatives[f"histogram-{number}"] = "Histogram: pairs by cosine from -1 to 1, before the flow and after it."
    for number, (loss, records) in enumerate(curve_groups(report), start=1):
        lines = "; ".join(
            f"{one['source']} from {one['curve']['losses'][loss][0]:.4g} to {one['curve']['losses'][loss][-1]:.4g} "
            f"after {one['curve']['steps'][-1]:,} steps"
            for one in records
        )
        alternatives[f"curve-{number}"] = f"A line for each run: {lines}."
    return alternatives


def curve_groups(report: dict) -> list[tuple[str, list[dict]]]:
    """Pairs of a loss and the trainings that have a line in one plot of it, six at most."""
    groups = []
    for loss in LOSSES:
        learned = [one for one in report["trainings"] if one["curve"] and one["curve"]["losses"].get(loss)]
        groups += [(loss, learned[i : i + _LINES]) for i in range(0, len(learned), _LINES)]
    return groups


def seed_groups(report: dict) -> list[list[dict]]:
    """Rows that have a place in one plot of seeds, for each place: those of one task with several seeds."""
    groups: dict[tuple, list[dict]] = {}
    for row in report["scores"]:
        if row["this_run"]["n"] > 1:
            groups.setdefault((row["metric"], row["task"], row["split"], row["protocol"]), []).append(row)
    return list(groups.values())


def analysis_plots(sources: Sequence[Source]) -> dict[str, bytes]:
    """The SVG documents that `bert-flow analyze` wrote, by the names that `collect` gives them in `figures`.

    Raises:
      UserError: one is missing, cannot be read, or is no SVG.
    """
    plots = {}
    for kind, (file, _) in _PLOTS.items():
        for number, source in enumerate((one for one in sources if one.kind == kind), start=1):
            path, expected = source.path / file, "the plot that bert-flow analyze writes"
            drawing = read_file(path, expected)
            if b"<svg" not in drawing:
                raise UserError(f"{path}: found content that is not SVG, expected {expected}")
            plots[f"{kind}-{number}"] = drawing
    return plots
