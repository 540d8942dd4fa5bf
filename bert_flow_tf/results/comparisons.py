"""Rows of a report beside their baseline, the paper's figure and the original code's; None for what is not comparable.

Comparable is the same thing measured in the same way on the same pairs. A figure of the paper needs the paper's
encoder, length, training and protocol; one of the original's code needs its weights, pooling, flow and training. All of
that must be recorded: what is not known is not compared.
"""

import pathlib
from collections.abc import Mapping, Sequence

from bert_flow_tf.paper.original_runs import original_figure, original_runs
from bert_flow_tf.paper.presets import PRESETS, Preset, paper_row
from bert_flow_tf.paper.tables import SCORED_PAIRS, paper_tables
from bert_flow_tf.results.records import Calibrations, Reproduction
from bert_flow_tf.results.rows import Row, reproduction_rows, task_title
from bert_flow_tf.runs.record import Encoder, Flow, Setting, Training

PAPER_LENGTH = 64
# Fine-tuning of an encoder before it was used.
NLI, OTHER, UNKNOWN = "NLI", "other", "unknown"
# GLUE has two versions of QNLI's dev set; the paper does not say which it took.
_QNLI_PAIRS = (5463, 5732)
# Pairs of MNLI's training split and of SNLI, with its dev and test splits or without (961,735 and 942,069), give or
# take those without a label.
_NLI_PAIRS = range(935_000, 965_000)
# 1 epoch of MNLI and SNLI at 2e-5, batches of 16 (Li et al. 2020, section 4.1, and the original's README).
_NLI_TRAINING: dict[str, Setting] = {
    "num_train_epochs": 1,
    "learning_rate": 2e-5,
    "train_batch_size": 16,
    "num_examples": -1,
    "max_seq_length": 64,
    "flow": 0,
    "dupe_factor": 1,
    "l2_penalty": -1,
    "sentence_embedding_type": "avg",
}
# How the paper's flow is learned, on all sentences of the target task (the original's README).
_FLOW_TRAINING: dict[str, Setting] = {
    "num_examples": 0,
    "num_train_epochs": 1.0,
    "train_batch_size": 32,
    "flow_learning_rate": 1e-3,
    "use_full_for_training": 1,
    "dupe_factor": 1,
    "flow_loss": 1,
    "flow_ddi": False,
}
# Pairs that a flow on the target learns on, by --use_full_for_training: the training split, or all. Of QNLI, those
# of the old and of the new version; STS-12 to STS-16 have one split, which is all three to the original.
_LEARNED_PAIRS: dict[str, dict[Setting, tuple[int, ...]]] = {
    "STS-B": {0: (5749,), 1: (8628,)},
    "SICK-R": {0: (4500,), 1: (9927,)},
    "QNLI": {0: (108_436, 104_743), 1: (119_908, 115_669)},
    **{task: {0: (), 1: (3 * pairs,)} for (task, _), pairs in SCORED_PAIRS.items() if task.startswith("STS-1")},
}
# The code's default, which the authors' commands train, and the paper's Table 7.
_PAPER_FLOWS = ("config_l3_d3_w32", "config_l2_d3_w32")
_ENCODERS = ("base", "large")
# Calibration -> row of Table 5; the k of the tuned ones was chosen on dev there too.
_TABLE_5 = {
    "none": "BERT-base",
    "sn": "+ SN",
    "natsv-1": "+ NATSV (k=1)",
    "natsv": "+ NATSV (k=10)",
    "sn+natsv-1": "+ SN + NATSV (k=1)",
    "sn+natsv": "+ SN + NATSV (k=6)",
    "flow": "BERT-base-flow (target)",
}


def fine_tuning_of(encoder: Encoder) -> str | None:
    """None for an encoder as it was published; else `NLI`, the paper's, `OTHER`, or `UNKNOWN`."""
    training = encoder.fine_tuning
    if training is None:
        return None
    if not training.settings:
        return UNKNOWN
    is_papers = (training.task, training.began_with) == ("allnli", None) and training.pairs in _NLI_PAIRS
    return NLI if is_papers and _agrees(training, _NLI_TRAINING) else OTHER


def encoder_in_report(encoder: Encoder) -> dict:
    """What a report shows of an encoder: `name`, `handle`, `fingerprint` and `fine_tuning`."""
    return {
        "name": encoder.name,
        "handle": encoder.handle,
        "fingerprint": encoder.fingerprint,
        "fine_tuning": fine_tuning_of(encoder),
    }


def flow_in_report(flow: Flow | None) -> dict | None:
    """What a report shows of a flow: `config` (its name), `learned_on` and `flags`; None without one."""
    if flow is None:
        return None
    task = flow.training.task
    return {"config": flow.name, "learned_on": task and task_title(task), "flags": flow.training.settings}


def compared(rows: Sequence[Row]) -> list[dict]:
    """A dict for each row, ready for JSON: what it is of, `this_run`, `baseline`, `paper`, `original` and differences.

    `baseline` is the same encoder and pooling without a flow among the rows, of the same pairs.
    """
    results = []
    for row in rows:
        model, this = row.model, row.summary
        record = {
            **{name: getattr(row, name) for name in ("source", "name")},
            "encoder": encoder_in_report(model.encoder),
            **{name: getattr(model, name) for name in ("pooling", "max_seq_length", "low_dim")},
            "flow": flow_in_report(model.flow),
            "seeds": list(row.seeds),
            **{name: getattr(row, name) for name in ("task", "split", "metric", "protocol", "pairs")},
            "this_run": this,
            "subsets": row.subsets,
        }
        others = {"baseline": _baseline(row, rows), "paper": paper_figure(row), "original": original_of(row)}
        for name, other in others.items():
            record[name] = other
            record[f"difference_from_{name}_x100"] = other and this["mean_x100"] - other["mean_x100"]
        results.append(record | {"paper_seeds": paper_seeds(row)})
    return results


def compared_reproduction(record: Reproduction, folder: pathlib.Path) -> dict[tuple[str, str], dict]:
    """dict of `paper`, `paper_seeds` and `original` by (task's key, row's name), for what `reproduce` is to write.

    Args:
      record: without these.
      folder: that of its runs.
    """
    return {
        (task, name): {"paper": paper_figure(row), "paper_seeds": paper_seeds(row), "original": original_of(row)}
        for task, name, row in reproduction_rows(record, folder)
        if row.protocol == record.tasks[task].protocol
    }


def _baseline(row: Row, rows: Sequence[Row]) -> dict | None:
    if row.model.flow is None:
        return None
    found = [
        other
        for other in rows
        if other.model.flow is None
        and other.place == row.place
        and _are_same(other.model.encoder, row.model.encoder)
        and _are_of_same_encoders(other, row)
        and (other.model.pooling, other.model.max_seq_length, other.model.low_dim)
        == (row.model.pooling, row.model.max_seq_length, row.model.low_dim)
    ]
    if not found:
        return None
    best = next((one for one in found if one.folder == row.folder), found[0])
    return {"source": best.source, "name": best.name, **best.summary}


def _are_of_same_encoders(other: Row, row: Row) -> bool:
    """Whether two rows are of the same fine-tuned encoders: a row over several seeds names that of the first alone."""
    one_each = len(other.seeds) <= 1 and len(row.seeds) <= 1
    return row.model.encoder.fine_tuning is None or one_each or list(other.seeds) == list(row.seeds)


def _are_same(encoder: Encoder, other: Encoder) -> bool:
    """Whether two encoders have the same weights; one that a run trained has no fingerprint before it is converted."""
    known = encoder.fingerprint is not None and encoder.fingerprint == other.fingerprint
    return known or (encoder.weights is not None and encoder.weights == other.weights)


def paper_figure(row: Row) -> dict | None:
    """The paper's figure for a row: dict of `row`, its name there, `mean_x100` and `source`; None without one."""
    if not _is_papers_encoder(row) or not _is_papers_task(row):
        return None
    preset = _preset(row)
    if preset is None:
        return None
    if row.task == "QNLI":
        return _table4(row, preset)
    is_nli = fine_tuning_of(row.model.encoder) == NLI
    found = paper_row(preset, row.model.encoder.name, is_nli, row.task, paper_tables())
    return found and {"row": found["row"], "mean_x100": found["spearman_x100"], "source": found["source"]}


def paper_seeds(row: Row) -> dict | None:
    """Table 8's row for a row of several seeds: dict of `row`, `mean_x100`, `std_x100`, `median_x100`; None without."""
    if len(row.values_x100) < 2 or row.task != "STS-B" or fine_tuning_of(row.model.encoder) != NLI:
        return None
    if not _is_papers_encoder(row) or not _is_papers_task(row):
        return None
    preset = _preset(row)
    if preset is None:
        return None
    # The table names the flow on the target by what it does.
    title = {"flow-target": "-last2avg + flow-target"}.get(preset.name, preset.title)
    name = f"BERT-{row.model.encoder.name}-NLI{title}"
    figures = paper_tables()["table8_seeds"]["rows"].get(name)
    return figures and {"row": name, **{f"{key}_x100": value for key, value in figures.items()}}


def original_of(row: Row) -> dict | None:
    """What the original's code gives on the weights of a row, see `original_runs.original_figure`; None without."""
    theirs, model = original_runs(), row.model
    if (row.task, row.split, row.pairs) != (theirs["task"], theirs["split"], theirs["pairs"]):
        return None
    if row.metric != "spearman" or not _is_original_encoder(model.encoder):
        return None
    if model.max_seq_length != theirs["max_seq_length"] or model.low_dim is not None:
        return None
    if model.flow is None:
        return original_figure(model.pooling, None, [])
    training = model.flow.training
    if model.flow.name is None or task_title(training.task or "") != row.task:
        return None
    if not _learned_as(training, _FLOW_TRAINING) or not _learned_all_pairs(training, row.task):
        return None
    return original_figure(model.pooling, model.flow.name, row.seeds)


def _is_original_encoder(encoder: Encoder) -> bool:
    """Whether these are the weights that the original's code was run on."""
    return encoder.name == original_runs()["encoder"]["bert_hub"] and encoder.fine_tuning is None


def _is_papers_encoder(row: Row) -> bool:
    return row.model.encoder.name in _ENCODERS and fine_tuning_of(row.model.encoder) in (None, NLI)


def _is_papers_task(row: Row) -> bool:
    if row.model.max_seq_length != PAPER_LENGTH or row.model.low_dim is not None:
        return False
    if row.task == "QNLI":
        return (row.split, row.metric) == ("dev", "auc") and row.pairs in _QNLI_PAIRS
    if row.metric != "spearman" or SCORED_PAIRS.get((row.task, row.split)) != row.pairs:
        return False
    is_combined = row.task.startswith("STS-1")
    return row.protocol == ("wmean" if is_combined else None)


def _preset(row: Row) -> Preset | None:
    """The row of the paper's tables that a model is; None where it is none."""
    pooling, flow = row.model.pooling, row.model.flow
    if flow is None:
        return next((one for one in PRESETS.values() if one.flow is None and one.pooling == pooling), None)
    if flow.name not in _PAPER_FLOWS:
        return None
    training = flow.training
    for preset in PRESETS.values():
        if preset.flow is None or preset.pooling != pooling:
            continue
        wanted = _FLOW_TRAINING | {name: float(value) for name, value in preset.flow.items()}
        task = "ALLNLI" if preset.on_nli else row.task
        if task_title(training.task or "") != task or not _learned_as(training, wanted):
            continue
        if training.pairs in _NLI_PAIRS if preset.on_nli else _learned_all_pairs(training, row.task):
            return preset
    return None


def _learned_all_pairs(training: Training, task: str) -> bool:
    """Whether a flow on the target learned on all pairs of the splits that its settings name."""
    return training.pairs in _LEARNED_PAIRS.get(task, {}).get(training.settings["use_full_for_training"], ())


def _learned_as(training: Training, wanted: Mapping[str, Setting]) -> bool:
    """Whether a flow began with nothing and learned with these settings, and without a penalty."""
    penalty = training.settings.get("l2_penalty")
    no_penalty = isinstance(penalty, int | float) and penalty <= 0
    return training.began_with is None and no_penalty and _agrees(training, wanted)


def _agrees(training: Training, wanted: Mapping[str, Setting]) -> bool:
    return all(name in training.settings and training.settings[name] == value for name, value in wanted.items())


def _table4(row: Row, preset: Preset) -> dict | None:
    is_nli = fine_tuning_of(row.model.encoder) == NLI
    name = f"BERT-{row.model.encoder.name}{'-NLI' if is_nli else ''}{preset.title}"
    figure = paper_tables()["table4_qnli"]["rows"].get(name)
    return None if figure is None else {"row": name, "mean_x100": figure, "source": "paper"}


def table5_row(method: str, task: str, fit_on: str, test_pairs: int, flow_config: str | None) -> dict | None:
    """Table 5's row for a calibration: dict of `row` and `mean_x100`; None without one, and on other data than its.

    Args:
      method: name of the calibration.
      task: that was calibrated, by any of its names.
      fit_on: splits that calibrations were fitted on; the paper's are fitted on "all".
      test_pairs: number of pairs of the test split.
      flow_config: name of the flow's configuration; the paper's flows have two of them.
    """
    if (task_title(task), fit_on, test_pairs) != ("STS-B", "all", SCORED_PAIRS["STS-B", "test"]):
        return None
    if method == "flow" and flow_config not in _PAPER_FLOWS:
        return None
    name = _TABLE_5.get(method)
    figures = paper_tables()["table5_calibration_baselines"]["rows"]
    return None if name is None else {"row": name, "mean_x100": figures[name]}


def compared_calibration(record: Calibrations, rows: Sequence[dict]) -> list[dict]:
    """The rows with `difference_from_none_x100`, `paper`, `original` and the differences from these.

    Table 5 is of BERT-base, mean of the last layer, fitted on the target: its figures stand beside those of any
    encoder on the same pairs, the flow's beside that of the paper's architecture, and only that encoder's differ.

    Args:
      record: what was calibrated.
      rows: dicts of `method`, `mean_x100`, `seeds` and more.
    """
    none = next((row for row in rows if row["method"] == "none"), None)
    model = record.model
    is_papers = model is not None and (
        (model.encoder.name, model.encoder.fine_tuning, model.pooling, model.max_seq_length)
        == ("base", None, "avg", PAPER_LENGTH)
    )
    results = []
    for row in rows:
        mean, data = row["mean_x100"], record.data
        paper = table5_row(row["method"], data.task, record.fit_on, data.pairs.test, record.flow_model_config)
        original = _original_of_calibration(record, row)
        differences = {
            "difference_from_none_x100": None if none is None or row is none else mean - none["mean_x100"],
            "difference_from_paper_x100": mean - paper["mean_x100"] if paper and is_papers else None,
            "difference_from_original_x100": original and mean - original["mean_x100"],
        }
        results.append(row | {"paper": paper, "original": original} | differences)
    return results


def _original_of_calibration(record: Calibrations, row: dict) -> dict | None:
    theirs, model = original_runs(), record.model
    data = (task_title(record.data.task), "test", record.data.pairs.test)
    if data != (theirs["task"], theirs["split"], theirs["pairs"]) or record.fit_on != "all":
        return None
    if model is None or not _is_original_encoder(model.encoder):
        return None
    if record.metric != "spearman" or model.max_seq_length != theirs["max_seq_length"]:
        return None
    if row["method"] not in ("none", "flow"):
        return None
    return original_figure(model.pooling, record.flow_model_config if row["method"] == "flow" else None, row["seeds"])
