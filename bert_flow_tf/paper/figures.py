"""Published figures: the paper's tables, and scores of the authors' TensorFlow 1 code, all in `figures.json`."""

import functools
import importlib.resources
import json
from collections.abc import Mapping
from typing import NamedTuple

from bert_flow_tf.data.sts_sets import task_title
from bert_flow_tf.paper.presets import FLOW_FLAGS, NLI_FLAGS, PRESETS
from bert_flow_tf.runs.pretraining import MASKED_LM
from bert_flow_tf.runs.record import BERT_NAMES, Encoder, Flow, Training

NLI, OTHER, UNKNOWN = "NLI", "other", "unknown"
# The code's default, which the authors' commands train, and the paper's Table 7.
PAPER_FLOWS = ("config_l3_d3_w32", "config_l2_d3_w32")
_FLOW = FLOW_FLAGS | {"flow_ddi": "0"}
_NLI = NLI_FLAGS | {"flow": "0", "num_examples": "-1", "max_seq_length": "64"}


class Published(NamedTuple):
    """What the paper and the original code have for one score, times 100."""

    row: str | None = None  # The paper's row.
    paper: float | None = None
    seeds: Mapping[str, float] | None = None  # Table 8's `mean`, `std` and `median`.
    original: tuple[float, ...] = ()  # One for each run of the original code.


@functools.cache
def paper_tables() -> dict:
    """Return the figures of Li et al. 2020 and of the original code; shared, so not to be changed."""
    return json.loads(importlib.resources.files("bert_flow_tf.paper").joinpath("figures.json").read_text("utf-8"))


def beside(task: str, split: str, pooling: str, flow: Flow | None, encoder: Encoder) -> Published | None:
    """Return the figures that a score of all pairs of a task can be compared with; None without any.

    Args:
      task: its title, as the paper prints it. QNLI is compared by AUC on dev, the others by Spearman's correlation on
        test, and STS-12 to STS-16 by the mean over their sets, weighted by size.
      pooling: `sentence_embedding_type`.
    """
    tables, tuned = paper_tables(), fine_tuning_of(encoder)
    if split != ("dev" if task == "QNLI" else "test"):
        return None
    found = Published()
    title = _row_title(task, pooling, flow)
    if title is not None and encoder.name in BERT_NAMES and tuned in (None, NLI):
        row = f"BERT-{encoder.name}{'-NLI' if tuned else ''}{title}"
        seeds = tables["table8_seeds"]["rows"].get(row) if task == "STS-B" else None
        found = Published(row, tables["scores"].get(row, {}).get(task), seeds)
    if flow is None or _learned_as(flow.training, _FLOW, task):
        name = None if tuned else encoder.name
        found = found._replace(original=original_scores(task, name, pooling, flow and flow.name))
    return found if found.paper is not None or found.original else None


def original_scores(task: str, encoder_name: str | None, pooling: str, config: str | None) -> tuple[float, ...]:
    """Return the original code's scores times 100 of an encoder as published; `config` is of the flow, None without."""
    ran, keys = paper_tables()["original"], ("changed", "sentence_embedding_type", "flow_model_config")
    if (task, encoder_name) != (ran["task"], ran["encoder"]["bert_hub"]):
        return ()
    runs = [run for run in ran["runs"] if tuple(run[key] for key in keys) == (None, pooling, config)]
    return tuple(100 * run["spearman"] for run in runs)


def table5(method: str, task: str, flow_config: str) -> tuple[str, float] | None:
    """Return Table 5's row and figure for a calibration that is fitted on all of a task; None without."""
    table = paper_tables()["table5_calibration_baselines"]
    row = table["methods"].get(method)
    if row is None or task != "STS-B" or (method == "flow" and flow_config not in PAPER_FLOWS):
        return None
    return row, table["rows"][row]


def fine_tuning_of(encoder: Encoder) -> str | None:
    """Return None for an encoder as it was published, else `NLI` (as the paper), `MASKED_LM`, `OTHER` or `UNKNOWN`."""
    training = encoder.fine_tuning
    if training is None:
        return None
    if not training.settings:
        return UNKNOWN
    if training.settings.get("objective") == MASKED_LM:
        return MASKED_LM
    return NLI if _learned_as(training, _NLI, "ALLNLI") else OTHER


def is_whole(task: str, split: str, pairs: int | None) -> bool:
    """True if so many pairs are all of a task's split, which may also be `all` of its splits."""
    fewest, most = paper_tables()["pairs"].get(f"{task} {split}", (1, 0))
    return fewest <= (pairs or 0) <= most


def _row_title(task: str, pooling: str, flow: Flow | None) -> str | None:
    for preset in PRESETS.values():
        if preset.pooling == pooling and (preset.flow is None) == (flow is None):
            on = "ALLNLI" if preset.on_nli else task
            if flow is None or (
                flow.name in PAPER_FLOWS and _learned_as(flow.training, _FLOW | (preset.flow or {}), on)
            ):
                return preset.title
    return None


def _learned_as(training: Training, flags: Mapping[str, str], task: str) -> bool:
    """True if a training began with published weights and had all pairs of a task and these flags of `run_siamese`."""
    split = "all" if float(flags.get("use_full_for_training", 0)) == 1 else "train"
    if training.began_with is not None or task_title(training.task or "") != task:
        return False
    wanted = {"dupe_factor": "1", "l2_penalty": "-1", **flags}
    agrees = all(training.settings.get(name) == float(value) for name, value in wanted.items())
    return agrees and is_whole(task, split, training.pairs)
