"""Learn a flow for `BertFlow.fit`: on which sentences, how long, and what is kept of it."""

import dataclasses
import math
import os
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

import glow
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.evaluation.flow_checks import Change
from bert_flow_tf.runs.settings import flow_config

if TYPE_CHECKING:
    from glow.calibrator import FlowCalibrator

# Steps by default, and too few of them; the original takes 269 on the STS Benchmark.
_ENOUGH_STEPS, _FEW_STEPS = 300, 100
# Sentences held out to measure what a flow changes; of fewer, measures say little, and of more no more.
_HELD_OUT = range(10, 1001)


@dataclasses.dataclass(frozen=True)
class History:
    """The course of a flow's training.

    Attributes:
      losses: float32 [steps], each step's loss before it, in bits per dimension.
      change: the flow's change of the space, on held-out sentences; None without any.
    """

    losses: np.ndarray
    change: Change | None


def hold_out(sentences: list[str], fraction: float, batch_size: int, seed: int) -> tuple[list[str], list[str]]:
    """Return the sentences to learn on, in their order, and the held-out ones, each once.

    `fraction` of the different sentences is held out; none where that is few, or leaves less than a step.

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
    """Return `glow.FlowCalibrator`'s arguments; None for epochs is one, or as many as give 300 steps."""
    if epochs is None:
        epochs = float(max(1, math.ceil(_ENOUGH_STEPS * batch_size / rows)))
    return {"epochs": epochs, "batch_size": batch_size, "learning_rate": learning_rate}


def check_settings(epochs: float | None, **settings: Any) -> None:
    """Raise `UserError` for a setting that `glow.FlowCalibrator` does not take; None for epochs is as of `fit`."""
    try:
        glow.FlowCalibrator(epochs=1.0 if epochs is None else epochs, **settings).check_settings()
    except ValueError as error:
        raise UserError(f"fit: {error}") from error


def learned_by(
    learn: Callable[["FlowCalibrator"], object],
    rows: int,
    flow_model_config: str | os.PathLike,
    settings: dict[str, Any],
    seed: int,
    show_progress_bar: bool | None,
) -> "FlowCalibrator":
    """Return a new calibrator after `learn`, with `flow_settings`; warn after fewer than 100 steps.

    Raises:
      UserError: there is no such configuration, or `learn` raised a `ValueError`.
    """
    # Loaded where it is used: it brings scikit-learn.
    calibrator = glow.FlowCalibrator(
        flow_config(flow_model_config), **settings, seed=seed, show_progress_bar=show_progress_bar
    )
    try:
        learn(calibrator)
    except ValueError as error:
        raise UserError(f"fit: {error}") from error
    if calibrator.n_steps_ < _FEW_STEPS:
        warnings.warn(
            f"fit: {calibrator.n_steps_} steps on {rows} sentences; after fewer than {_FEW_STEPS} a flow may be worse "
            "than none: use more sentences, or more epochs",
            # Of the caller of `fit`.
            stacklevel=4,
        )
    return calibrator


def learn_blocks(
    calibrator: "FlowCalibrator",
    blocks: Callable[[np.random.Generator], Iterable[np.ndarray]],
    rows: int,
    show_progress_bar: bool | None,
) -> None:
    """Learn the epochs of `rows` embeddings in blocks, float32 [k, D]; `blocks` gives one epoch's, in random order.

    Raises:
      ValueError: the epochs have fewer rows than a step, or as `partial_fit`.
    """
    left = int(rows * calibrator.epochs)
    if left < calibrator.batch_size:
        given = f"{left} rows in {calibrator.epochs} epochs"
        raise ValueError(f"found {given}, expected at least the {calibrator.batch_size} of one step")
    generator = np.random.default_rng([calibrator.seed, 2])
    hidden = None if show_progress_bar is None else not show_progress_bar
    with tqdm(total=left, desc="flow", unit="sentence", disable=hidden) as progress:
        while left:
            for block in blocks(generator):
                calibrator.partial_fit(block[:left])
                progress.update(min(len(block), left))
                left -= min(len(block), left)
                if not left:
                    break
