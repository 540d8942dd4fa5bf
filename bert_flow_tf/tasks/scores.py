"""The records of scores and measures, and their tables."""

import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

import msgspec

from bert_flow_tf.common.errors import UserError
from bert_flow_tf.common.json_files import Count, read_json, write_json
from bert_flow_tf.common.records import (
    CalibrationRecord,
    EncoderRecord,
    ModelRecord,
    Result,
    Setting,
)
from bert_flow_tf.common.table import Entry, Table, number, x100
from bert_flow_tf.tasks.protocols import TaskScores
from bert_flow_tf.vectors.isotropy import Isotropy
from bert_flow_tf.vectors.metrics import METRIC_NAMES

# Every record has these names for embeddings without a calibration and with it.
WITHOUT_FLOW = "without flow"
WITH_FLOW = "with flow"
# Each measure of `vectors.isotropy.Isotropy` has this many decimals.
_DECIMALS = {
    "constant_channels": 0,
    "mean_cosine": 4,
    "mean_share": 4,
    "top_share": 4,
    "centred_top_share": 4,
    "participation_ratio": 1,
    "effective_rank": 1,
    "partition_ratio": 4,
    "iso_score": 4,
    "uniformity": 4,
}
# The others are named by their words.
_NAMES = {"iso_score": "IsoScore"}
# A note below scores that fall with the flow.
WHY_FLOW = (
    "A flow helps if embeddings lie in a cone, as after masked language modelling:",
    "see run_scripts/paper_effect.sh. Encoders trained for similarity, such as demo, may lose.",
)


def falls(change: float | None) -> bool:
    """True for a score, times 100, that falls by more than 0.5."""
    return change is not None and change < -0.5


class ScoredRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The scores of one model, and what they depend on.

    Attributes:
      name: of its row in tables: a run's checkpoint, the model as a user named it, or the name of
        `reproduce`'s row. "" in Python.
      seed: of the row; None outside of `reproduce`.
      fingerprint: the model's; None if only `model` identifies it.
      settings: the flags that the scores depend on beside the model.
      tasks: by name; a score is `scores.tasks["pairs"].by_protocol["all"]`, a fraction.
      without_flow: the same for the encoder alone; None if there is no flow.
    """

    name: str = ""
    seed: Count | None = None
    model: ModelRecord
    fingerprint: str | None = None
    settings: dict[str, Setting] = {}
    tasks: Annotated[dict[str, TaskScores], msgspec.Meta(min_length=1)]
    without_flow: dict[str, TaskScores] | None = None


class Scores(Result, frozen=True, kw_only=True, tag="scores"):
    """Scores by task: of one model, or of rows over seeds.

    `str` gives a table.

    Attributes:
      runs: one, or one per row and seed of `bert-flow reproduce`.
    """

    runs: Annotated[list[ScoredRun], msgspec.Meta(min_length=1)]

    @property
    def model(self) -> ModelRecord:
        """The model of the first run.

        Only `reproduce` has more than one run.
        """
        return self.runs[0].model

    @property
    def tasks(self) -> dict[str, TaskScores]:
        """The scores of the first run."""
        return self.runs[0].tasks

    @property
    def without_flow(self) -> dict[str, TaskScores] | None:
        """The scores of the first run's encoder alone.

        The value is None if there is no flow.
        """
        return self.runs[0].without_flow

    def __str__(self) -> str:
        columns = ("task", "split", "metric", "pairs", "x100", "Pearson", "without flow", "change")
        before = self.without_flow or {}
        rows = [_score_cells(task, before.get(name)) for name, task in self.tasks.items()]
        return Table(columns, rows, model_in_words(self.model)).to_text()


class Basis(NamedTuple):
    """The data, settings and model that scores depend on.

    Fields with the value None are not compared.

    Attributes:
      data: `ScoredTask.digest` of each wanted task by name.
    """

    data: Mapping[str, str]
    settings: Mapping[str, Setting]
    model: ModelRecord | None = None
    fingerprint: str | None = None

    def differences(self, run: ScoredRun) -> list[str]:
        """Return in what a run's scores depend on something else, in words."""
        found: dict[str, Any] = dict(run.settings)
        wanted: dict[str, Any] = dict(self.settings)
        if self.model is not None:
            found |= _flat(run.model)
            wanted |= _flat(self.model)
        if self.fingerprint is not None and run.fingerprint is not None:
            found["fingerprint"] = run.fingerprint
            wanted["fingerprint"] = self.fingerprint
        changed = [
            f"{name} is {found.get(name)!r}, not {wanted.get(name)!r}"
            for name in sorted(found.keys() | wanted.keys())
            if found.get(name) != wanted.get(name)
        ]
        return changed + [
            f"the data of {run.tasks[name].title} have changed"
            for name, digest in self.data.items()
            if name in run.tasks and run.tasks[name].data != digest
        ]


def remaining_tasks(path: pathlib.Path, wanted: Basis, *, overwrite: bool) -> list[str]:
    """Return the wanted tasks that a file of scores lacks.

    The list is empty if the file is finished.

    This is the only rule by which a command takes a result for done: its record has this model,
    these settings and the digest of these data. A name or a path proves nothing.

    Raises:
      UserError: the file has other content, which would be lost, and `overwrite` is false.
    """
    run = None if overwrite else _only_run(path)
    if run is None:
        return [*wanted.data]
    if differing := "; ".join(wanted.differences(run)):
        raise UserError(
            f"{path}: found results of something else ({differing}), expected none, or "
            "--overwrite to replace them"
        )
    return [name for name in wanted.data if name not in run.tasks]


def write_scores(path: pathlib.Path, scores: Scores, *, overwrite: bool) -> Scores:
    """Write scores of one model beside those of its other tasks.

    All of these scores are returned.

    Call `remaining_tasks` before the work, which says if the file may be written.
    """
    earlier = None if overwrite else _only_run(path)
    if earlier is not None:
        (run,) = scores.runs
        sides = [(earlier.without_flow or {}) | (run.without_flow or {})]
        merged = msgspec.structs.replace(
            run, tasks=earlier.tasks | run.tasks, without_flow=sides[0] or None
        )
        scores = msgspec.structs.replace(scores, runs=[merged])
    write_json(path, scores)
    return scores


def _only_run(path: pathlib.Path) -> ScoredRun | None:
    """Return the run of a file of scores; None without a file."""
    if not os.path.lexists(path):
        return None
    try:
        scores = read_json(path, Scores, expected="scores of one model")
    except UserError as error:
        raise UserError(
            f"{path}: exists, expected a new file, scores of the same model, or --overwrite "
            f"({error})"
        ) from error
    if len(scores.runs) > 1:
        raise UserError(
            f"{path}: exists, with rows of bert-flow reproduce, expected a new file, scores of the "
            "same model, or --overwrite"
        )
    return scores.runs[0]


def model_identity(model: ModelRecord) -> bytes:
    """Return the same bytes for all records of one model.

    The folder that its run lies in does not matter.
    """
    return msgspec.json.encode(_flat(model), order="deterministic")


def _flat(model: ModelRecord) -> dict[str, Any]:
    """Return a model's record by dotted names; a checkpoint without its folder."""

    def flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict):
            for key, one in value.items():
                yield from flat(one, f"{name}.{key}".lstrip("."))
        elif value is not None:
            yield name, value

    found = dict(flat(msgspec.to_builtins(model), ""))
    # The same run may be named by another path.
    if model.checkpoint is not None:
        found["checkpoint"] = pathlib.Path(model.checkpoint).name
    return found


def _score_cells(task: TaskScores, before: TaskScores | None) -> list[Entry]:
    """Return a task's cells in the table of `Scores`."""
    # A task of several sets has their weighted mean, as in the paper.
    scores = task.by_metric.get(task.metric, {})
    protocol = next((name for name in scores if name != "all"), "all")
    score = scores.get(protocol)
    alone = None if before is None else before.by_metric.get(task.metric, {}).get(protocol)
    return [
        task.title,
        task.split,
        f"{METRIC_NAMES[task.metric]} {protocol.replace('all', '')}".strip(),
        number(task.pairs, 0, note="" if task.unit == "pairs" else task.unit),
        x100(score),
        x100(task.by_metric.get("pearson", {}).get(protocol)),
        x100(alone),
        number(None if score is None or alone is None else 100 * (score - alone), sign="+"),
    ]


class IsotropyResults(Result, frozen=True, kw_only=True, tag="isotropy"):
    """Results of `bert-flow isotropy`; `reference` is a standard normal's.

    Attributes:
      task, split: None for sentences of one's own.
      alignment: of positive pairs, by the names of `measures`; empty without such pairs.
    """

    model: ModelRecord
    task: str | None = None
    split: str | None = None
    sentences: Count
    measures: dict[str, Isotropy]
    reference: Isotropy
    bits_per_dim: dict[str, float]
    positive_pairs: Count = 0
    alignment: dict[str, float] = msgspec.field(default_factory=dict)


def model_in_words(model: ModelRecord) -> str:
    """Return encoder, pooling, length and the flow's training, for a title."""
    tuning = model.encoder.fine_tuning
    tuned = tuning and (tuning.settings.get("objective") or tuning.task or "unknown")
    words = [
        encoder_words(model.encoder, tuned),
        model.pooling,
        f"{model.max_seq_length} word pieces",
    ]
    if model.truncate_dim:
        words.append(f"the first {model.truncate_dim} channels")
    return ", ".join(filter(None, [*words, learning_in_words(model.flow)]))


def learning_in_words(flow: CalibrationRecord | None) -> str:
    """Name an affine map, or say whether a flow learned with dropout."""
    settings = flow.training.settings if flow else {}
    if flow and settings.keys() == {"method"} and flow.training.seed is None:
        return f"{flow.method} of unknown training"
    if flow and flow.config is None:
        return flow.method
    # Only `BertFlow.fit` records held-out sentences, and it uses no dropout.
    without = settings.get("cache_embeddings") or "held_out" in settings
    return f"flow learned with{'out' if without else ''} dropout" if settings else ""


def encoder_words(encoder: EncoderRecord, tuned: object) -> str:
    """Return an encoder's name, and its fine-tuning if any.

    The end of its handle replaces a missing name.
    """
    words = encoder.name or encoder.handle.rstrip("/").rpartition("/")[2]
    return f"{words}, fine-tuned: {tuned} ({(encoder.fingerprint or '')[:8]})" if tuned else words


def channels_in_words(result: IsotropyResults) -> str:
    """Return the sides' channels, for a title."""
    widths = {name: side.channels for name, side in result.measures.items()}
    if len({*widths.values()}) == 1:
        return f"{result.reference.channels} channels"
    named = ", ".join(f"{width} {name}" for name, width in widths.items())
    return f"channels: {named}, {result.reference.channels} standard normal"


def isotropy_table(result: IsotropyResults) -> Table:
    """Return a table of measures, then alignment and bits per dimension."""
    measures = result.measures | {"standard normal": result.reference}
    rows: list[list[Entry]] = []
    for key, digits in _DECIMALS.items():
        values = [getattr(one, key) for one in measures.values()]
        # One channel has no IsoScore.
        if any(value is not None for value in values):
            name = _NAMES.get(key, key.replace("_", " "))
            rows.append([name, *(number(value, digits) for value in values)])
    if result.alignment:
        pairs = f"alignment, positive pairs: {result.positive_pairs:,}"
        rows.append([pairs, *(number(result.alignment.get(name), 4) for name in measures)])
    blanks = [None] * (len(measures) - 1)
    rows += [
        [f"bits per dimension, {name}", number(bits, 4), *blanks]
        for name, bits in result.bits_per_dim.items()
    ]
    return Table(("measure", *measures), rows)
