"""The records of scores and measures, and their tables."""

import msgspec

from bert_flow_tf.common.json_files import Count
from bert_flow_tf.common.records import CalibrationRecord, EncoderRecord, ModelRecord, Result
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


class Scores(Result, frozen=True, kw_only=True, tag="scores"):
    """Scores of a model by task, with and without its flow.

    `str` gives a table.

    Attributes:
      tasks: by name; a score is `scores.tasks["pairs"].by_protocol["all"]`, a fraction.
      without_flow: the same for the encoder alone; None if there is no flow.
    """

    model: ModelRecord
    tasks: dict[str, TaskScores]
    without_flow: dict[str, TaskScores] | None = None

    def __str__(self) -> str:
        columns = ("task", "split", "metric", "pairs", "x100", "Pearson", "without flow", "change")
        before = self.without_flow or {}
        rows = [_score_cells(task, before.get(name)) for name, task in self.tasks.items()]
        return Table(columns, rows, model_in_words(self.model)).to_text()


def _score_cells(task: TaskScores, before: TaskScores | None) -> list[Entry]:
    """Return a task's cells in the table of `Scores`."""
    # A task of several sets has their weighted mean, as in the paper.
    protocol = next((name for name in task.by_protocol if name != "all"), "all")
    score = task.by_protocol[protocol]
    alone = None if before is None else before.by_protocol[protocol]
    return [
        task.title,
        task.split,
        f"{METRIC_NAMES[task.metric]} {protocol.replace('all', '')}".strip(),
        number(task.pairs, 0, note="" if task.unit == "pairs" else task.unit),
        x100(score),
        x100(task.by_metric.get("pearson", {}).get(protocol)),
        x100(alone),
        number(None if alone is None else 100 * (score - alone), sign="+"),
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
    words = [_encoder_in_words(model.encoder), model.pooling, f"{model.max_seq_length} word pieces"]
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


def _encoder_in_words(encoder: EncoderRecord) -> str:
    words = encoder.name or encoder.handle.rstrip("/").rpartition("/")[2]
    training = encoder.fine_tuning
    if training is None:
        return words
    tuned = training.settings.get("objective") or training.task or "unknown"
    return f"{words}, fine-tuned: {tuned} ({(encoder.fingerprint or '')[:8]})"


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
