"""Measure the isotropy of a model's embeddings on both sides."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_flow_tf.common.records import made_by
from bert_flow_tf.tasks.scores import IsotropyResults
from bert_flow_tf.tasks.scoring import sides
from bert_flow_tf.vectors.isotropy import alignment, gaussian_bits_per_dim, measure_isotropy
from glow.constant_channels import negligible_channels

# So many rows pass the flow at once.
_ROWS = 1024


@dataclasses.dataclass(frozen=True)
class MeasuredModel:
    """The measures of a model's embeddings, and the embeddings.

    Attributes:
      sides: embeddings [n, D] of the sentences, by the names of `results.measures`.
    """

    results: IsotropyResults
    sides: dict[str, np.ndarray]


def measure_model(
    model: Any, sentences: Sequence[str], pairs: Sequence[tuple[str, str]] = ()
) -> MeasuredModel:
    """Measure how evenly a model's embeddings fill their space.

    Args:
      sentences: n different ones.
      pairs: positive pairs, whose alignment is measured; their sentences may be others.
    """
    rows = {text: i for i, text in enumerate(sentences)}
    for pair in pairs:
        for text in pair:
            rows.setdefault(text, len(rows))
    pooled = model.encode_pooled(list(rows))
    # The sentences of pairs alone come last.
    n = len(sentences)
    found = sides(model, pooled)
    measured = {name: side[:n] for name, side in found.items()}
    # The calibrated side, if any, is the last, and may have fewer channels.
    width = [*found.values()][-1].shape[1]
    numbers = np.array([[rows[text] for text in pair] for pair in pairs], int).reshape(-1, 2)
    results = IsotropyResults(
        made_by=made_by("bert-flow isotropy"),
        model=model.record,
        sentences=n,
        measures={name: measure_isotropy(side) for name, side in measured.items()},
        # Compare with normal draws, because the spectrum of a finite sample is not flat either.
        reference=measure_isotropy(np.random.default_rng(0).normal(size=(n, width))),
        bits_per_dim=_bits_per_dim(model, pooled[:n]),
        positive_pairs=len(numbers),
        alignment={
            name: alignment(side[numbers[:, 0]], side[numbers[:, 1]])
            for name, side in found.items()
            if len(numbers)
        },
    )
    return MeasuredModel(results, measured)


def _bits_per_dim(model: Any, pooled: np.ndarray) -> dict[str, float]:
    """Return the bits per dimension of a Gaussian and of a flow."""
    constant = int(negligible_channels(pooled.astype(np.float64)).sum())
    # A Gaussian has no density in constant channels; the flow's bits count all channels.
    varying = f" over the {pooled.shape[1] - constant} channels that vary" if constant else ""
    bits = {f"diagonal Gaussian{varying}": gaussian_bits_per_dim(pooled)}
    if model.record.flow is not None and model.record.flow.config is not None:
        flow = model.require_flow("isotropy")
        blocks = (pooled[i : i + _ROWS] for i in range(0, len(pooled), _ROWS))
        found = [flow.forward_and_bits_per_dim(block)[1] for block in blocks]
        bits["flow"] = float(np.concatenate(found).mean(dtype=float))
    return bits
