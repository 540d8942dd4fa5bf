"""The paper's scores and those of the authors' TF1 code."""

import functools
import importlib.resources
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from bert_flow_tf.common.records import (
    BERT_NAMES,
    MASKED_LM,
    CalibrationRecord,
    EncoderRecord,
    ModelRecord,
    Training,
)
from bert_flow_tf.tasks.scored_tasks import task_title

NLI = "NLI"
# The authors' commands use the first configuration; the paper's Table 7 names the second.
_PAPER_FLOWS = ("config_l3_d3_w32", "config_l2_d3_w32")
# The authors train 1 epoch of MNLI and SNLI (Li et al. 2020, section 4.1, and the original's
# README).
NLI_FLAGS = {"num_train_epochs": 1.0, "learning_rate": 2e-5, "train_batch_size": 16}
# The original's README learns the flow on all sentences of the target task.
FLOW_FLAGS: dict[str, float] = {
    "flow_loss": 1,
    "flow_learning_rate": 1e-3,
    "num_examples": 0,
    "num_train_epochs": 1.0,
}
FLOW_FLAGS |= {"train_batch_size": 32, "use_full_for_training": 1, "flow_ddi": False}
_COMMON = {"dupe_factor": 1, "l2_penalty": -1}
_FLOW_ON_NLI = {"use_full_for_training": 0, "num_train_epochs": 0.15, "flow_learning_rate": 2e-5}


class Preset(NamedTuple):
    """A row of the paper's Tables 2 and 3; `flow` overrides FLOW_FLAGS."""

    name: str
    title: str  # the row's words in the paper, after the encoder's name
    pooling: str  # `sentence_embedding_type`
    flow: dict[str, Any] | None
    on_nli: bool = False  # True if the flow is learned on NLI sentences

    @property
    def trains(self) -> bool:
        return self.flow is not None


_PRESETS = (
    Preset("avg", "", "avg", None),
    Preset("last2avg", "-last2avg", "avg-last-2", None),
    Preset("flow-target", "-flow (target)", "avg-last-2", {}),
    Preset("flow-avg", "-flow (target, avg)", "avg", {}),
    Preset("flow-train", "-flow (target, train only)", "avg-last-2", {"use_full_for_training": 0}),
    Preset("flow-nli", "-flow (NLI)", "avg-last-2", _FLOW_ON_NLI, on_nli=True),
)
PRESETS = {preset.name: preset for preset in _PRESETS}


class Published(NamedTuple):
    """Published figures for one score, times 100."""

    row: str | None = None  # the paper's row
    paper: float | None = None
    seeds: Mapping[str, float] | None = None  # Table 8's `mean`, `std` and `median`
    original: tuple[float, ...] = ()  # one for each run of the original code


@functools.cache
def paper_tables() -> dict[str, Any]:
    """Return the content of `paper.json`; do not change the dict."""
    return json.loads(
        importlib.resources.files("bert_flow_tf.report").joinpath("paper.json").read_text("utf-8")
    )


def published_figures(
    task: str, split: str, pooling: str, flow: CalibrationRecord | None, encoder: EncoderRecord
) -> Published:
    """Return the published figures for a score, if any.

    Args:
      task: the paper's title. QNLI is compared by AUC on dev, the others by Spearman's correlation
        on test, and STS-12 to STS-16 by the mean over their sets, weighted by size.
    """
    tables = paper_tables()
    tuned = fine_tuning_of(encoder)
    row = None
    paper = None
    seeds = None
    if split != ("dev" if task == "QNLI" else "test"):
        return Published()
    title = _row_title(task, pooling, flow)
    if title is not None and encoder.name in BERT_NAMES and tuned in (None, NLI):
        row = f"BERT-{encoder.name}{'-NLI' if tuned else ''}{title}"
        paper = tables["scores"].get(row, {}).get(task)
        seeds = tables["table8_seeds"]["rows"].get(row) if task == "STS-B" else None
    original = tables["original"]
    found = []
    is_same_encoder = (task, encoder.name, tuned) == (
        original["task"],
        original["encoder"]["bert_hub"],
        None,
    )
    if is_same_encoder and (flow is None or _learned_as(flow.training, FLOW_FLAGS, task)):
        wanted = (None, pooling, flow and flow.name)
        keys = ("changed", "sentence_embedding_type", "flow_model_config")
        found = [
            100 * run["spearman"]
            for run in original["runs"]
            if tuple(run[key] for key in keys) == wanted
        ]
    return Published(row, paper, seeds, tuple(found))


def table5(method: str, task: str, flow_config: str) -> tuple[str, float] | None:
    """Return Table 5's row and figure for a calibration, or None."""
    table = paper_tables()["table5_calibration_baselines"]
    row = table["methods"].get(method)
    if row is None or task != "STS-B" or (method == "flow" and flow_config not in _PAPER_FLOWS):
        return None
    return row, table["rows"][row]


def fine_tuning_of(encoder: EncoderRecord) -> str | None:
    """Return None, `NLI`, `MASKED_LM`, "other" or "unknown".

    None means that the encoder is as published, `NLI` that it had the paper's fine-tuning.
    """
    training = encoder.fine_tuning
    if training is None or not training.settings:
        return None if training is None else "unknown"
    if training.settings.get("objective") == MASKED_LM:
        return MASKED_LM
    flags = NLI_FLAGS | {"flow": 0, "num_examples": -1, "max_seq_length": 64}
    return NLI if _learned_as(training, flags, "ALLNLI") else "other"


def is_whole(task: str, split: str, pairs: int | None) -> bool:
    """True if a whole split, or `all`, has this many pairs."""
    fewest, most = paper_tables()["pairs"].get(f"{task} {split}", (1, 0))
    return fewest <= (pairs or 0) <= most


def has_papers_shape(model: ModelRecord) -> bool:
    """True for the paper's number of word pieces, and all channels."""
    return model.max_seq_length == 64 and model.low_dim <= 0 and model.truncate_dim is None


def unmet_conditions(task: str, split: str, pairs: int, model: ModelRecord) -> list[str]:
    """Return what a score lacks to stand beside the paper's figures."""
    tables = paper_tables()
    compared = "dev" if task == "QNLI" else "test"
    conditions = {
        "64 word pieces and all channels": has_papers_shape(model),
        "a task of its tables": any(task in row for row in tables["scores"].values()),
        f"the whole {compared} split": split == compared and is_whole(task, split, pairs),
        "BERT-base or BERT-large": model.encoder.name in BERT_NAMES,
        "an encoder as published, or fine-tuned on the full NLI sets": (
            fine_tuning_of(model.encoder) in (None, NLI)
        ),
        "a pooling and a flow of its tables": _row_title(task, model.pooling, model.flow)
        is not None,
    }
    return [name for name, is_met in conditions.items() if not is_met]


def _row_title(task: str, pooling: str, flow: CalibrationRecord | None) -> str | None:
    for preset in _PRESETS:
        if preset.pooling == pooling and (preset.flow is None) == (flow is None):
            flags = FLOW_FLAGS | (preset.flow or {})
            on = "ALLNLI" if preset.on_nli else task
            if flow is None or (
                flow.name in _PAPER_FLOWS and _learned_as(flow.training, flags, on)
            ):
                return preset.title
    return None


def _learned_as(training: Training, flags: dict[str, float], task: str) -> bool:
    """True if the training began with published weights and used these flags."""
    if training.began_with is not None or task_title(training.task or "") != task:
        return False
    agrees = all(training.settings.get(name) == value for name, value in (flags | _COMMON).items())
    return agrees and is_whole(
        task, "all" if flags.get("use_full_for_training") else "train", training.pairs
    )
