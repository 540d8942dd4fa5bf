"""The records of scores and measures, and their tables."""

from bert_flow_tf.evaluation.isotropy import Isotropy
from bert_flow_tf.evaluation.protocols import TaskScores
from bert_flow_tf.files.json_files import Count
from bert_flow_tf.records import CalibrationRecord, EncoderRecord, ModelRecord, Result
from bert_flow_tf.table import Entry, Table, number

# Each measure of `evaluation.isotropy.Isotropy` has this many decimals.
_DECIMALS = {
    "constant_channels": 0,
    "mean_cosine": 4,
    "mean_share": 4,
    "top_share": 4,
    "centred_top_share": 4,
    "participation_ratio": 1,
    "effective_rank": 1,
    "partition_ratio": 4,
}


class Scores(Result, frozen=True, kw_only=True, tag="scores"):
    """Scores of a model by task, with and without its flow."""

    model: ModelRecord
    tasks: dict[str, TaskScores]
    without_flow: dict[str, TaskScores] | None = None


class IsotropyResults(Result, frozen=True, kw_only=True, tag="isotropy"):
    """Results of `bert-flow isotropy`; `reference` is a standard normal's."""

    model: ModelRecord
    task: str
    split: str
    sentences: Count
    measures: dict[str, Isotropy]
    reference: Isotropy
    bits_per_dim: dict[str, float]


def model_in_words(model: ModelRecord) -> str:
    """Return encoder, pooling, length and the flow's training, for a title."""
    words = [_encoder_in_words(model.encoder), model.pooling, f"{model.max_seq_length} word pieces"]
    return ", ".join(filter(None, [*words, learning_in_words(model.flow)]))


def learning_in_words(flow: CalibrationRecord | None) -> str:
    """Say whether the flow learned with dropout; return "" without a record."""
    settings = flow.training.settings if flow else {}
    if flow and settings.keys() == {"method"} and flow.training.seed is None:
        return f"{flow.method} of unknown training"
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


def isotropy_table(result: IsotropyResults) -> Table:
    """Return a table of measures, then bits per dimension of each density."""
    measures = result.measures | {"standard normal": result.reference}
    rows: list[list[Entry]] = []
    for key, digits in _DECIMALS.items():
        rows.append(
            [
                key.replace("_", " "),
                *(number(getattr(one, key), digits) for one in measures.values()),
            ]
        )
    blanks = [None] * (len(measures) - 1)
    rows += [
        [f"bits per dimension, {name}", number(bits, 4), *blanks]
        for name, bits in result.bits_per_dim.items()
    ]
    return Table(("measure", *measures), rows)
