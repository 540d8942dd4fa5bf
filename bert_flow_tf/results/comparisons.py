"""Rows of a report beside their baseline, the paper's figure and the original code's; None for what is not comparable.

Comparable is the same thing measured in the same way on the same pairs. A figure of the paper needs the paper's
encoder, length, training and protocol; one of the original's code needs its weights, pooling, flow and training. All of
that must be recorded: what is not known is not compared.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bert_flow_tf.data.sts_sets import task_title
from bert_flow_tf.paper.figures import original_figure, original_runs, paper_tables
from bert_flow_tf.paper.presets import FLOW_FLAGS, NLI_FLAGS, PRESETS, Preset
from bert_flow_tf.results.records import Calibrations
from bert_flow_tf.results.rows import Row
from bert_flow_tf.runs.pretraining import MASKED_LM
from bert_flow_tf.runs.record import Encoder, Flow, Model, Setting, Training

PAPER_LENGTH = 64
# Fine-tuning of an encoder before it was used.
NLI, OTHER, UNKNOWN = "NLI", "other", "unknown"
# Pairs with gold scores in the sets that the paper scores; of STS-13 without SMT, as SentEval has it.
_SCORED_PAIRS = {
    "STS-B": 1379,
    "SICK-R": 4927,
    "STS-12": 3108,
    "STS-13": 1500,
    "STS-14": 3750,
    "STS-15": 3000,
    "STS-16": 1186,
}
# GLUE has two versions of QNLI's dev set; the paper does not say which it took.
_QNLI_PAIRS = (5463, 5732)
# Pairs of MNLI's training split and of SNLI, with its dev and test splits or without (961,735 and 942,069), give or
# take those without a label.
_NLI_PAIRS = range(935_000, 965_000)


def _values(flags: Mapping[str, str]) -> dict[str, Setting]:
    return {name: float(value) for name, value in flags.items()}


_NLI_TRAINING = _values(NLI_FLAGS) | {
    "num_examples": -1,
    "max_seq_length": 64,
    "flow": 0,
    "dupe_factor": 1,
    "l2_penalty": -1,
    "sentence_embedding_type": "avg",
}
_FLOW_TRAINING = _values(FLOW_FLAGS) | {"dupe_factor": 1, "flow_ddi": False}
# Pairs that a flow on the target learns on, by --use_full_for_training: the training split, or all. Of QNLI, those
# of the old and of the new version; STS-12 to STS-16 have one split, which is all three to the original.
_LEARNED_PAIRS: dict[str, dict[Setting, tuple[int, ...]]] = {
    "STS-B": {0: (5749,), 1: (8628,)},
    "SICK-R": {0: (4500,), 1: (9927,)},
    "QNLI": {0: (108_436, 104_743), 1: (119_908, 115_669)},
    **{task: {0: (), 1: (3 * pairs,)} for task, pairs in _SCORED_PAIRS.items() if task.startswith("STS-1")},
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
    """None for an encoder as it was published; else `NLI`, the paper's, `MASKED_LM`, `OTHER`, or `UNKNOWN`."""
    training = encoder.fine_tuning
    if training is None:
        return None
    if not training.settings:
        return UNKNOWN
    if training.settings.get("objective") == MASKED_LM:
        return MASKED_LM
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


def published(row: Row) -> dict[str, dict | None]:
    """What a row's score stands beside: `paper`, `paper_seeds` (its Table 8) and `original`; None without one."""
    return {"paper": paper_figure(row), "paper_seeds": paper_seeds(row), "original": original_of(row)}


def compared(rows: Sequence[Row]) -> list[dict]:
    """A dict for each row, ready for JSON: what it is of, `this_run`, `baseline`, `paper`, `original` and differences.

    `baseline` is the same encoder and pooling without a flow among the rows, of the same pairs; see `baseline_of`.
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
        plain = baseline_of(row, rows)
        baseline = plain and {"source": plain.source, "name": plain.name, **plain.summary}
        others = {"baseline": baseline, **published(row)}
        for name in ("baseline", "paper", "original"):
            other = record[name] = others[name]
            record[f"difference_from_{name}_x100"] = other and this["mean_x100"] - other["mean_x100"]
        results.append(record | {"paper_seeds": others["paper_seeds"]})
    return results


def baseline_of(row: Row, rows: Sequence[Row]) -> Row | None:
    """The row, among all, of the same encoder and pooling without a flow, on the same pairs.

    Without one, that of the same embeddings before the flow, where they were scored too; else None.
    """
    if row.model.flow is None:
        return None

    def embedding(one: Row) -> tuple:
        return one.place, one.model.pooling, one.model.max_seq_length, one.model.low_dim

    found = [
        other
        for other in rows
        if other.model.flow is None and embedding(other) == embedding(row) and _are_of_same_encoders(other, row)
    ]
    return next((one for one in found if one.folder == row.folder), found[0]) if found else row.before_flow


def _are_of_same_encoders(other: Row, row: Row) -> bool:
    theirs, ours = other.model.encoder, row.model.encoder
    # One that a run trained has no fingerprint before it is converted.
    digests = (theirs.fingerprint, ours.fingerprint), (theirs.weights, ours.weights)
    if not any(their is not None and their == our for their, our in digests):
        return False
    # A row over several seeds names the fine-tuned encoder of the first alone.
    one_each = len(other.seeds) <= 1 and len(row.seeds) <= 1
    return ours.fine_tuning is None or one_each or list(other.seeds) == list(row.seeds)


def paper_figure(row: Row) -> dict | None:
    """The paper's figure for a row: dict of `row`, its name there, `mean_x100` and `source`; None without one."""
    preset = _preset(row)
    if preset is None:
        return None
    tables, name = paper_tables(), _name_in_paper(row, preset.title)
    by_task = tables["table3_nli_supervision" if row.model.encoder.fine_tuning else "table2_no_nli_supervision"]["rows"]
    figures = {**by_task.get(name, {}), "QNLI": tables["table4_qnli"]["rows"].get(name)}
    if figures.get(row.task) is not None:
        return {"row": name, "mean_x100": figures[row.task], "source": "paper"}
    # The flow on the train split alone is in the README of the original, for STS-B.
    figure = tables["repository_readme_stsb"]["rows"].get(name) if row.task == "STS-B" else None
    return figure and {"row": name, "mean_x100": figure, "source": "README of the original"}


def paper_seeds(row: Row) -> dict | None:
    """Table 8's row for a row of several seeds: dict of `row`, `mean_x100`, `std_x100`, `median_x100`; None without."""
    preset = _preset(row)
    if preset is None or len(row.values_x100) < 2 or row.task != "STS-B" or row.model.encoder.fine_tuning is None:
        return None
    # The table names the flow on the target by what it does.
    name = _name_in_paper(row, {"flow-target": "-last2avg + flow-target"}.get(preset.name, preset.title))
    figures = paper_tables()["table8_seeds"]["rows"].get(name)
    return figures and {"row": name, **{f"{key}_x100": value for key, value in figures.items()}}


def _name_in_paper(row: Row, title: str) -> str:
    encoder = row.model.encoder
    return f"BERT-{encoder.name}{'-NLI' if encoder.fine_tuning else ''}{title}"


def original_of(row: Row) -> dict | None:
    """What the original's code gives on the weights of a row, see `figures.original_figure`; None without."""
    model, flow = row.model, row.model.flow
    if not _is_the_originals(model, row.task, row.split, row.pairs, row.metric):
        return None
    if flow is None:
        return original_figure(model.pooling, None, [])
    if flow.name is None or not _learned_as(flow.training, _FLOW_TRAINING, row.task):
        return None
    return original_figure(model.pooling, flow.name, row.seeds)


def _is_the_originals(model: Model, task: str, split: str, pairs: int, metric: str) -> bool:
    """Whether the original's code was run on these weights, pairs and length."""
    theirs, encoder = original_runs(), model.encoder
    ours = task, split, pairs, model.max_seq_length, encoder.name
    return ours == (
        *(theirs[key] for key in ("task", "split", "pairs", "max_seq_length")),
        theirs["encoder"]["bert_hub"],
    ) and (metric, encoder.fine_tuning, model.low_dim) == ("spearman", None, None)


def _preset(row: Row) -> Preset | None:
    """The row of the paper's tables that a score is of; None where anything differs, or is not known."""
    model, flow = row.model, row.model.flow
    if model.encoder.name not in _ENCODERS or fine_tuning_of(model.encoder) not in (None, NLI):
        return None
    if (model.max_seq_length, model.low_dim) != (PAPER_LENGTH, None):
        return None
    if row.task == "QNLI":
        if (row.split, row.metric) != ("dev", "auc") or row.pairs not in _QNLI_PAIRS:
            return None
    else:
        protocol = "wmean" if row.task.startswith("STS-1") else None
        if row.place != (row.task, "test", "spearman", protocol, _SCORED_PAIRS.get(row.task)):
            return None
    if flow is None:
        return next((one for one in PRESETS.values() if (one.flow, one.pooling) == (None, model.pooling)), None)
    for preset in PRESETS.values():
        if preset.flow is not None and preset.pooling == model.pooling and flow.name in _PAPER_FLOWS:
            wanted = _FLOW_TRAINING | _values(preset.flow)
            if _learned_as(flow.training, wanted, "ALLNLI" if preset.on_nli else row.task):
                return preset
    return None


def _learned_as(training: Training, wanted: Mapping[str, Setting], task: str) -> bool:
    """Whether a flow began with nothing and learned on all pairs of the task with these settings, without a penalty."""
    if training.began_with is not None or task_title(training.task or "") != task or not _agrees(training, wanted):
        return False
    penalty = training.settings.get("l2_penalty")
    learned = _LEARNED_PAIRS.get(task, {}).get(training.settings["use_full_for_training"], ())
    pairs = _NLI_PAIRS if task == "ALLNLI" else learned
    return isinstance(penalty, int | float) and penalty <= 0 and training.pairs in pairs


def _agrees(training: Training, wanted: Mapping[str, Setting]) -> bool:
    return all(name in training.settings and training.settings[name] == value for name, value in wanted.items())


def table5_row(record: Calibrations, method: str) -> dict | None:
    """Table 5's row for a calibration: dict of `row` and `mean_x100`; None without one, and on other data than its."""
    where = task_title(record.data.task), record.fit_on, record.data.pairs.test
    if where != ("STS-B", "all", _SCORED_PAIRS["STS-B"]) or method not in _TABLE_5:
        return None
    if method == "flow" and record.flow_model_config not in _PAPER_FLOWS:
        return None
    name = _TABLE_5[method]
    return {"row": name, "mean_x100": paper_tables()["table5_calibration_baselines"]["rows"][name]}


def is_of_table5(model: Model | None) -> bool:
    """Whether a model's embeddings are those of the paper's Table 5."""
    return model is not None and (
        (model.encoder.name, model.encoder.fine_tuning, model.pooling, model.max_seq_length)
        == ("base", None, "avg", PAPER_LENGTH)
    )


def compared_calibration(record: Calibrations, rows: Sequence[dict[str, Any]]) -> list[dict]:
    """The rows with `difference_from_none_x100`, `paper`, `original` and the differences from these.

    Table 5 is of BERT-base, mean of the last layer, fitted on the target: its figures stand beside those of any
    encoder on the same pairs, the flow's beside that of the paper's architecture, and only that encoder's differ.
    """
    none = next((row for row in rows if row["method"] == "none"), None)
    model, data, is_papers = record.model, record.data, is_of_table5(record.model)
    place = task_title(data.task), "test", data.pairs.test, record.metric
    is_originals = model is not None and record.fit_on == "all" and _is_the_originals(model, *place)
    flows = {"none": None, "flow": record.flow_model_config}
    results = []
    for row in rows:
        mean, method, original = row["mean_x100"], row["method"], None
        paper = table5_row(record, method)
        if model is not None and is_originals and method in flows:
            original = original_figure(model.pooling, flows[method], row["seeds"])
        differences = {
            "difference_from_none_x100": None if none is None or row is none else mean - none["mean_x100"],
            "difference_from_paper_x100": mean - paper["mean_x100"] if paper and is_papers else None,
            "difference_from_original_x100": original and mean - original["mean_x100"],
        }
        results.append(row | {"paper": paper, "original": original} | differences)
    return results
