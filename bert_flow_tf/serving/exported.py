"""What all formats of an export share: the description, and the embeddings that what was written is compared with."""

import copy
import dataclasses
import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.files.json_files import FORMAT_VERSION
from bert_flow_tf.model.embedding_model import EmbeddingModel
from bert_flow_tf.model.siamese import check_low_dim
from bert_flow_tf.serving import DTYPES

TOLERANCE = 1e-4
# One of every kind that text can be: nothing, one word, mixed case, marks, other scripts, and one to be cut.
CHECKED_SENTENCES = (
    "",
    "Rain.",
    "A small boat crosses the lake at dawn.",
    "The train to the coast leaves at 7:45 p.m., doesn't it?",
    "Señora Müller ordered a crème brûlée",
    "東京 is the capital of Japan",
    "tab\tand\nline break, and an emoji: 🙂",
    "word " * 600,
)


@dataclasses.dataclass(frozen=True)
class Exported:
    """What was written, and how far what was loaded again from it is from the live model.

    Attributes:
      path: the folder; of a SavedModel, the version's.
      max_difference, max_value: largest absolute difference over the `CHECKED_SENTENCES`, and value of the live model;
        None where nothing could be loaded.
      min_cosine: smallest cosine of a sentence's embedding with the live model's; None likewise.
      flow_bytes: size of the flow's files, where it has files of its own.
    """

    path: pathlib.Path
    max_difference: float | None = None
    max_value: float | None = None
    min_cosine: float | None = None
    flow_bytes: int | None = None

    @property
    def size(self) -> int:
        """Bytes of all files in `path`."""
        return sum(file.stat().st_size for file in self.path.rglob("*") if file.is_file())


def description(
    bert_flow: EmbeddingModel,
    *,
    normalize: bool = False,
    low_dim: int | None = None,
    max_seq_length: int | None = None,
    dtype: str = DTYPES[0],
) -> dict[str, Any]:
    """What an export is made of, for its `config.json`; None takes the model's own.

    Raises:
      ArgumentError: an option does not fit the model.
    """
    encoder = bert_flow.encoder
    low_dim = bert_flow.low_dim if low_dim is None else low_dim
    max_seq_length = bert_flow.max_seq_length if max_seq_length is None else max_seq_length
    if dtype not in DTYPES:
        raise ArgumentError(f"dtype: found {dtype}, expected {' or '.join(DTYPES)}")
    check_low_dim(low_dim, encoder.embedding_size)
    most = encoder.max_seq_length
    if max_seq_length < 3 or (most is not None and max_seq_length > most):
        expected = "3 or more" if most is None else f"3 to {most}, the positions that the encoder has"
        raise ArgumentError(f"max_seq_length: found {max_seq_length}, expected {expected}")
    return {
        "format_version": FORMAT_VERSION,
        "encoder_fingerprint": bert_flow.source.fingerprint,
        "do_lower_case": bert_flow.source.do_lower_case,
        "sentence_embedding_type": bert_flow.sentence_embedding_type,
        "max_seq_length": max_seq_length,
        "embedding_size": low_dim if low_dim > 0 else encoder.embedding_size,
        "low_dim": low_dim,
        "flow_config": bert_flow.flow.config.to_dict() if bert_flow.flow is not None else None,
        "normalized": normalize,
        "dtype": dtype,
    }


def checked_tokens(bert_flow: EmbeddingModel, described: dict[str, Any]) -> dict[str, tf.Tensor]:
    """The encoder's inputs of the `CHECKED_SENTENCES`."""
    return bert_flow.tokenizer(tf.constant(CHECKED_SENTENCES), described["max_seq_length"])


def live_embeddings(bert_flow: EmbeddingModel, described: dict[str, Any]) -> np.ndarray:
    """The live model's embeddings of the `CHECKED_SENTENCES`, as an export of this description should give them."""
    # A copy, as an export may be reduced to another dimension than the model.
    live = copy.copy(bert_flow)
    live.low_dim, live.pooled = described["low_dim"], bert_flow.encoder
    embeddings = live.embed_tokens(checked_tokens(bert_flow, described))
    return (tf.nn.l2_normalize(embeddings, axis=-1) if described["normalized"] else embeddings).numpy()


def compare(
    path: pathlib.Path, what: str, found: np.ndarray, live: np.ndarray, tolerance: float = TOLERANCE
) -> tuple[float, float, float]:
    """Largest difference from the live model, its largest value, and the smallest cosine of both.

    Raises:
      UserError: a value is not finite, or differs by more than `tolerance`, of the channel's largest value where that
        is above 1; the line names `path` and `what`.
    """
    difference, largest, cosine = differences(found, live)
    if not np.isfinite(live).all():
        raise UserError(f"{path}: the model's own embeddings are not finite, expected numbers; nothing was written")
    # Channel by channel: a large one must not hide what is wrong in the others. Such that NaN and infinity are refused.
    if not (np.abs(found - live) <= tolerance * np.maximum(1.0, np.abs(live).max(axis=0))).all():
        raise UserError(
            f"{path}: {what}, loaded again, differs from the model by {difference:.1e}, expected at most "
            f"{tolerance:.0e} of {max(1.0, largest):.1e}; nothing was written"
        )
    return difference, largest, cosine


def differences(found: np.ndarray, live: np.ndarray) -> tuple[float, float, float]:
    """As `compare`, without a limit."""
    norms = np.linalg.norm(live, axis=1) * np.linalg.norm(found, axis=1)
    cosine = float((np.sum(live * found, axis=1) / norms).min())
    return float(np.abs(found - live).max()), float(np.abs(live).max()), cosine
