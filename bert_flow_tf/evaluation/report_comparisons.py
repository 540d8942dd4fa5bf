"""Rows of a report beside their baseline, the paper's figure and the original code's; None for what is not comparable.

Comparable is the same thing measured in the same way on the same pairs. A figure of the paper needs the paper's
encoder, length, training and protocol; one of the original's code needs its weights, pooling, flow and training. All of
that must be recorded: what is not known is not compared.
"""

import pathlib
from collections.abc import Sequence

from bert_flow_tf.evaluation.original_runs import original_figure, original_runs
from bert_flow_tf.evaluation.paper import SCORED_PAIRS, paper_tables
from bert_flow_tf.evaluation.presets import PRESETS, Preset, paper_row
from bert_flow_tf.evaluation.report_records import Record
from bert_flow_tf.evaluation.report_rows import Row, reproduction_rows, task_title
from bert_flow_tf.evaluation.report_settings import FLOW_TRAINING, NLI, is_all_nli
from bert_flow_tf.evaluation.report_sources import REPRODUCTION_FILE, Source

PAPER_LENGTH = 64
# GLUE has two versions of QNLI's dev set; the paper does not say which it took.
_QNLI_PAIRS = (5463, 5732)
# Pairs that a flow on the target learns on, by --use_full_for_training: the training split, or all. Of QNLI, those
# of the old and of the new version; STS-12 to STS-16 have one split, which is all three to the original.
_LEARNED_PAIRS = {
    "STS-B": {0: (5749,), 1: (8628,)},
    "SICK-R": {0: (4500,), 1: (9927,)},
    "QNLI": {0: (108_436, 104_743), 1: (119_908, 115_669)},
    **{task: {0: (), 1: (3 * pairs,)} for (task, _), pairs in SCORED_PAIRS.items() if task.startswith("STS-1")},
}
# The code's default, which the authors' commands train, and the paper's Table 7.
_PAPER_FLOWS = ("config_l3_d3_w32", "config_l2_d3_w32")
_ENCODERS = ("base", "large")


def compared(rows: Sequence[Row]) -> list[dict]:
    """A dict for each row, ready for JSON: what it is of, `this_run`, `baseline`, `paper`, `original` and differences.

    `baseline` is the same encoder and pooling without a flow among the rows, of the same pairs.
    """
    results = []
    for row in rows:
        this = row.summary
        baseline, paper, original = _baseline(row, rows), paper_figure(row), original_of(row)
        record = {
            **{name: getattr(row, name) for name in ("source", "name")},
            "encoder": row.encoder.to_dict(),
            **{name: getattr(row, name) for name in ("pooling", "max_seq_length", "low_dim")},
            "flow": None if row.flow is None else row.flow.to_dict(),
            "seeds": list(row.seeds),
            **{name: getattr(row, name) for name in ("task", "split", "metric", "protocol", "pairs")},
            "this_run": this,
            "subsets": row.subsets,
        }
        mean = this["mean_x100"]
        for name, other in (("baseline", baseline), ("paper", paper), ("original", original)):
            record[name] = other
            record[f"difference_from_{name}_x100"] = None if other is None else mean - other["mean_x100"]
        record["paper_seeds"] = paper_seeds(row)
        results.append(record)
    return results


def compared_reproduction(record: dict, folder: pathlib.Path) -> dict[tuple[str, str], dict]:
    """dict of `paper`, `paper_seeds` and `original` by (task's key, row's name), for what `reproduce` is to write.

    Args:
      record: without these, as `reproduce` makes it.
      folder: that of its runs.
    """
    source = Source("reproduction", folder, Record(folder / REPRODUCTION_FILE, record), folder.name)
    return {
        (task, name): {"paper": paper_figure(row), "paper_seeds": paper_seeds(row), "original": original_of(row)}
        for task, name, row in reproduction_rows(source)
        if row.protocol == record["tasks"][task]["protocol"]
    }


def _baseline(row, rows):
    if row.flow is None:
        return None

    def what(one):
        return (
            one.encoder.weights,
            *(one.pooling, one.max_seq_length, one.low_dim),
            *(one.task, one.split, one.metric, one.protocol, one.pairs),
        )

    found = [one for one in rows if one.flow is None and what(one) == what(row)]
    if not found:
        return None
    best = next((one for one in found if one.folder == row.folder), found[0])
    return {"source": best.source, "name": best.name, **best.summary}


def paper_figure(row: Row) -> dict | None:
    """The paper's figure for a row: dict of `row`, its name there, `mean_x100` and `source`; None without one."""
    if not _is_papers_encoder(row) or not _is_papers_task(row):
        return None
    preset = _preset(row)
    if preset is None:
        return None
    if row.task == "QNLI":
        return _table4(row, preset)
    found = paper_row(preset, row.encoder.name, row.encoder.fine_tuning == NLI, row.task, paper_tables())
    return found and {"row": found["row"], "mean_x100": found["spearman_x100"], "source": found["source"]}


def paper_seeds(row: Row) -> dict | None:
    """Table 8's row for a row of several seeds: dict of `row`, `mean_x100`, `std_x100`, `median_x100`; None without."""
    if len(row.values_x100) < 2 or row.task != "STS-B" or row.encoder.fine_tuning != NLI:
        return None
    if not _is_papers_encoder(row) or not _is_papers_task(row):
        return None
    preset = _preset(row)
    if preset is None:
        return None
    # The table names the flow on the target by what it does.
    title = {"flow-target": "-last2avg + flow-target"}.get(preset.name, preset.title)
    name = f"BERT-{row.encoder.name}-NLI{title}"
    figures = paper_tables()["table8_seeds"]["rows"].get(name)
    return figures and {"row": name, **{f"{key}_x100": value for key, value in figures.items()}}


def original_of(row: Row) -> dict | None:
    """What the original's code gives on the weights of a row, see `original_runs.original_figure`; None without."""
    theirs = original_runs()
    if (row.task, row.split, row.pairs) != (theirs["task"], theirs["split"], theirs["pairs"]):
        return None
    if row.metric != "spearman" or not is_original_encoder(row.encoder.name, row.encoder.fine_tuning):
        return None
    if row.max_seq_length != theirs["max_seq_length"] or row.low_dim is not None:
        return None
    if row.flow is None:
        return original_figure(row.pooling, None, [])
    if row.flow.config is None or not _learned(row, FLOW_TRAINING) or task_title(row.flow.learned_on) != row.task:
        return None
    if not _learned_all_pairs(row):
        return None
    return original_figure(row.pooling, row.flow.config, row.seeds)


def is_original_encoder(name: str | None, fine_tuning: str | None) -> bool:
    """Whether these are the weights that the original's code was run on."""
    return name == original_runs()["encoder"]["bert_hub"] and fine_tuning is None


def _is_papers_encoder(row):
    return row.encoder.name in _ENCODERS and row.encoder.fine_tuning in (None, NLI)


def _is_papers_task(row):
    if row.max_seq_length != PAPER_LENGTH or row.low_dim is not None:
        return False
    if row.task == "QNLI":
        return (row.split, row.metric) == ("dev", "auc") and row.pairs in _QNLI_PAIRS
    if row.metric != "spearman" or SCORED_PAIRS.get((row.task, row.split)) != row.pairs or row.pairs is None:
        return False
    is_combined = row.task[:5] == "STS-1"
    return row.protocol == ("wmean" if is_combined else None)


def _preset(row) -> Preset | None:
    """The row of the paper's tables that a run's settings make; None where they make none."""
    if row.flow is None:
        return next((one for one in PRESETS.values() if one.flow is None and one.pooling == row.pooling), None)
    if row.flow.config not in _PAPER_FLOWS or row.flow.learned_on is None:
        return None
    for preset in PRESETS.values():
        if preset.flow is None or preset.pooling != row.pooling:
            continue
        training = FLOW_TRAINING | {name: float(value) for name, value in preset.flow.items()}
        learned_on = "ALLNLI" if preset.on_nli else row.task
        if not _learned(row, training) or task_title(row.flow.learned_on) != learned_on:
            continue
        if is_all_nli(row.flow.pairs) if preset.on_nli else _learned_all_pairs(row):
            return preset
    return None


def _learned_all_pairs(row):
    """Whether a flow on the target learned on as many pairs as the splits that its flags name hold."""
    return row.flow.pairs in _LEARNED_PAIRS.get(row.task, {}).get(row.flow.flags["use_full_for_training"], ())


def _learned(row, training):
    flags = row.flow.flags
    if flags is None or row.flow.begun:
        return False
    no_penalty = isinstance(flags.get("l2_penalty"), int | float) and flags["l2_penalty"] <= 0
    return no_penalty and all(flags.get(name) == value for name, value in training.items())


def _table4(row, preset):
    name = f"BERT-{row.encoder.name}{'-NLI' if row.encoder.fine_tuning == NLI else ''}{preset.title}"
    figure = paper_tables()["table4_qnli"]["rows"].get(name)
    return None if figure is None else {"row": name, "mean_x100": figure, "source": "paper"}


def compared_calibration(record: dict) -> dict:
    """A calibration's dict with each row's `difference` from "none", `paper`, `original` and their differences.

    Table 5 is of BERT-base, mean of the last layer, fitted on the target: its figures stand beside those of any
    encoder on the same pairs, the flow's beside that of the paper's architecture, and only that encoder's differ.

    Args:
      record: as `report_analyses.calibration` gives it.
    """
    encoder = record["encoder"]
    none = next((row for row in record["rows"] if row["method"] == "none"), None)
    is_papers_data = record["pairs"] == SCORED_PAIRS["STS-B", "test"]
    is_papers = is_papers_data and (
        encoder["name"],
        encoder["fine_tuning"],
        encoder["pooling"],
        encoder["max_seq_length"],
    ) == (
        "base",
        None,
        "avg",
        PAPER_LENGTH,
    )
    rows = []
    for row in record["rows"]:
        mean, original = row["mean_x100"], _original_of_calibration(record, row)
        has_paper = is_papers_data and (row["method"] != "flow" or record["flow_config"] in _PAPER_FLOWS)
        paper = row["paper"] if has_paper else None
        rows.append(
            row
            | {
                "paper": paper,
                "difference_from_none_x100": None if none is None or row is none else mean - none["mean_x100"],
                "difference_from_paper_x100": mean - paper["mean_x100"] if paper and is_papers else None,
                "original": original,
                "difference_from_original_x100": None if original is None else mean - original["mean_x100"],
            }
        )
    return record | {"rows": rows, "is_papers_encoder": is_papers}


def _original_of_calibration(record, row):
    encoder, theirs = record["encoder"], original_runs()
    if (record["task"], record["split"], record["pairs"]) != (theirs["task"], theirs["split"], theirs["pairs"]):
        return None
    if not is_original_encoder(encoder["name"], encoder["fine_tuning"]) or record["fit_on"] != "all":
        return None
    if record["metric"] != "spearman" or encoder["max_seq_length"] != theirs["max_seq_length"]:
        return None
    flow = {"none": None, "flow": record["flow_config"]}.get(row["method"], ...)
    if flow is ... or (row["method"] == "flow" and flow is None):
        return None
    return original_figure(encoder["pooling"], flow, row["seeds"])
