"""What `BertFlow.fit` decides before a flow learns, and what it keeps of how one learned."""

import dataclasses
import math
from typing import Any

import numpy as np

from bert_flow_tf.errors import ArgumentError
from bert_flow_tf.evaluation.change import Change

# What a flow gets where nobody says how long it learns; the original's on the STS Benchmark takes 269.
_ENOUGH_STEPS = 300
# Sentences held out to measure what a flow changes; of fewer, measures say little, and of more no more.
_HELD_OUT = range(10, 1001)


@dataclasses.dataclass(frozen=True)
class History:
    """How a flow learned.

    Attributes:
      losses: float32 [steps], each step's loss before it, in bits per dimension.
      change: what it changes of the space, on sentences that were held out; None without any.
    """

    losses: np.ndarray
    change: Change | None


def hold_out(sentences: list[str], fraction: float, batch_size: int, seed: int) -> tuple[list[str], list[str]]:
    """The sentences to learn on, in their order, and those that are held out, each once.

    So much of the different sentences is held out; none where that is few, or leaves less than a step.

    Raises:
      ArgumentError: `fraction` is not from 0 to below 1.
    """
    if not 0 <= fraction < 1:
        raise ArgumentError(f"dev_fraction: found {fraction}, expected a number from 0 to below 1")
    different = sorted(set(sentences))
    count = min(int(fraction * len(different)), _HELD_OUT[-1])
    if count not in _HELD_OUT:
        return sentences, []
    chosen = np.random.default_rng([seed, 3]).choice(len(different), count, replace=False)
    held_out = {different[i] for i in chosen}
    kept = [sentence for sentence in sentences if sentence not in held_out]
    return (kept, sorted(held_out)) if len(kept) >= batch_size else (sentences, [])


def flow_settings(epochs: float | None, batch_size: int, learning_rate: float, rows: int) -> dict[str, Any]:
    """What a `glow.FlowCalibrator` takes for so many rows; None for epochs gives one, or as many as give 300 steps."""
    if epochs is None:
        epochs = float(max(1, math.ceil(_ENOUGH_STEPS * batch_size / rows)))
    return {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate}
