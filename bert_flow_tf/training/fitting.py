"""Learn a flow for `BertFlow.fit`: the sentences that are held out, the number of epochs, and the course."""

import contextlib
import dataclasses
import itertools
import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

import glow
from bert_flow_tf.errors import ArgumentError, UserError
from bert_flow_tf.evaluation.isotropy import Change
from bert_flow_tf.runs.settings import flow_config

if TYPE_CHECKING:
    from glow.calibrator import FlowCalibrator

# Steps by default, and too few of them; the original takes 269 on the STS Benchmark.
_ENOUGH_STEPS, _FEW_STEPS = 300, 100
# Sentences held out to measure what a flow changes; fewer say little, and more say no more.
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


def default_epochs(batch_size: int, rows: int) -> float:
    """Return one, or as many epochs as give 300 steps."""
    return float(max(1, math.ceil(_ENOUGH_STEPS * batch_size / rows)))


def new_calibrator(flow_model_config: str | os.PathLike, epochs: float | None, **settings: Any) -> "FlowCalibrator":
    """Return a `glow.FlowCalibrator`; raise `UserError` for a setting that it does not take."""
    config = flow_config(flow_model_config)
    with _user_errors():
        calibrator = glow.FlowCalibrator(config, 1.0 if epochs is None else epochs, **settings)
        calibrator.check_settings()
    return calibrator


def learn(
    calibrator: "FlowCalibrator",
    embeddings: np.ndarray | Callable[[np.random.Generator], Iterable[np.ndarray]],
    rows: int,
    show_progress_bar: bool | None,
) -> None:
    """Learn on embeddings float32 [rows, D], or on a function that gives one epoch's in blocks, in random order.

    Raises:
      UserError: the epochs have fewer rows than a step, or as `FlowCalibrator.fit`.
    """
    with _user_errors():
        if isinstance(embeddings, np.ndarray):
            calibrator.fit(embeddings)
        else:
            left, least = int(rows * calibrator.epochs), calibrator.batch_size
            if left < least:
                given = f"{left} rows in {calibrator.epochs} epochs"
                raise ValueError(f"found {given}, expected at least the {least} of one step")
            generator = np.random.default_rng([calibrator.seed, 2])
            endless = itertools.chain.from_iterable(embeddings(generator) for _ in itertools.count())
            hides_bar = None if show_progress_bar is None else not show_progress_bar
            with tqdm(total=left, desc="flow", unit="sentence", disable=hides_bar) as progress:
                while left:
                    block = next(endless)[:left]
                    calibrator.partial_fit(block)
                    progress.update(len(block))
                    left -= len(block)
    if calibrator.n_steps_ < _FEW_STEPS:
        advice = f"after fewer than {_FEW_STEPS} a flow may be worse than none: use more sentences, or more epochs"
        # The level of the caller of `BertFlow.fit`.
        warnings.warn(f"fit: {calibrator.n_steps_} steps on {rows} sentences; {advice}", stacklevel=4)


@contextlib.contextmanager
def _user_errors() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise UserError(f"fit: {error}") from error
