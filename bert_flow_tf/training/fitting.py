"""Train the flow of `BertFlow.fit`."""

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
from bert_flow_tf.evaluation.witness import COMPARE, Judgement, Witness
from bert_flow_tf.runs.settings import flow_config
from glow.affine import AffineMap

if TYPE_CHECKING:
    from glow.calibrator import FlowCalibrator

# The default 300 steps are like the original's 269 on the STS Benchmark. After fewer than 100, `learn` warns.
_ENOUGH_STEPS, _FEW_STEPS = 300, 100
# Fewer held-out sentences would give a poor estimate of the flow's effect; more would hardly improve it.
_HELD_OUT, _ENOUGH_HELD_OUT = range(10, 1001), 200


@dataclasses.dataclass(frozen=True)
class History:
    """The record of a flow's training.

    Attributes:
      losses: float32 [steps], the loss before each step, in bits per dimension.
      judgement: the change of Spearman's correlation on labelled pairs; None without pairs.
      witness: the change of a measure that needs no labels; None without held-out sentences.
      change: the isotropy before and after; None without held-out sentences.
    """

    losses: np.ndarray
    judgement: Judgement | None
    witness: Witness | None
    change: Change | None

    def __str__(self) -> str:
        text = "\n".join(str(one) for one in (self.judgement, self.witness, self.change) if one is not None)
        return text.replace(COMPARE, "") if self.judgement else text


def hold_out(sentences: list[str], fraction: float, batch_size: int, seed: int) -> tuple[list[str], list[str]]:
    """Split sentences into a training set and distinct held-out sentences.

    Hold out `fraction` of the distinct sentences, but at least 200 or a fifth of them, whichever is fewer, and at most
    1,000. Hold out nothing if `fraction` is 0, if they would be fewer than 10, or if less than a batch would remain.

    Raises:
      ArgumentError: `fraction` is not from 0 to below 1.
    """
    if not 0 <= fraction < 1:
        raise ArgumentError(f"dev_fraction: found {fraction}, expected a number from 0 to below 1")
    distinct = sorted(set(sentences))
    least = min(_ENOUGH_HELD_OUT, len(distinct) // 5)
    count = min(max(int(fraction * len(distinct)), least), _HELD_OUT[-1])
    if not fraction or count not in _HELD_OUT:
        return sentences, []
    chosen = np.random.default_rng([seed, 3]).choice(len(distinct), count, replace=False)
    held_out = {distinct[i] for i in chosen}
    kept = [sentence for sentence in sentences if sentence not in held_out]
    return (kept, sorted(held_out)) if len(kept) >= batch_size else (sentences, [])


def affine_map(method: str, embeddings: np.ndarray) -> AffineMap:
    """Learn whitening or another `calibration` on embeddings [n, D]."""
    # Loading scikit-learn takes a second.
    from bert_flow_tf.evaluation.calibration import calibration

    n, width = embeddings.shape
    if method.startswith("whitening") and n <= width:
        raise UserError(f"fit: found {n} sentences for {method}, expected more than the {width} channels")
    with _user_errors():
        fitted = calibration(method).fit(embeddings)
    mean = getattr(fitted[0] if hasattr(fitted, "steps") else fitted, "mean_", np.zeros(width))
    kept = fitted.transform(np.eye(width) + mean)
    # whitening-D keeps D channels; zeros keep the width of the embeddings, and `truncate_dim=D` cuts them.
    return AffineMap(width, mean, np.pad(kept, ((0, 0), (0, width - kept.shape[1]))))


def default_epochs(batch_size: int, rows: int) -> float:
    """Return the fewest epochs, at least 1, that give 300 steps."""
    return float(max(1, math.ceil(_ENOUGH_STEPS * batch_size / rows)))


def new_calibrator(flow_model_config: str | os.PathLike, epochs: float | None, **settings: Any) -> "FlowCalibrator":
    """Return a `glow.FlowCalibrator`; raise `UserError` for an invalid setting."""
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
    held_out: np.ndarray | None,
) -> None:
    """Train a calibrator on an array, or on blocks from a function.

    With `held_out` [m, D], training ends where these rows are most likely, and `calibrator.epochs` says when.

    Raises:
      UserError: the epochs have fewer rows than one step, or `FlowCalibrator.fit` fails.
    """
    with _user_errors():
        if isinstance(embeddings, np.ndarray):
            calibrator.fit(embeddings, held_out=held_out)
            if held_out is not None:
                calibrator.epochs = calibrator.n_steps_ * calibrator.batch_size / rows
        else:
            left, batch_size = int(rows * calibrator.epochs), calibrator.batch_size
            if left < batch_size:
                found = f"{left} rows in {calibrator.epochs} epochs"
                raise ValueError(f"found {found}, expected at least the {batch_size} of one step")
            generator = np.random.default_rng([calibrator.seed, 2])
            endless = itertools.chain.from_iterable(embeddings(generator) for _ in itertools.count())
            hide_bar = None if show_progress_bar is None else not show_progress_bar
            with tqdm(total=left, desc="flow", unit="sentence", disable=hide_bar) as progress:
                while left:
                    block = next(endless)[:left]
                    calibrator.partial_fit(block)
                    progress.update(len(block))
                    left -= len(block)
    if held_out is None and calibrator.n_steps_ < _FEW_STEPS:
        advice = f"after fewer than {_FEW_STEPS}, a flow may be worse than none: use more sentences or epochs"
        # With this level, the warning names the line that called `BertFlow.fit`.
        warnings.warn(f"fit: {calibrator.n_steps_} steps on {rows} sentences; {advice}", stacklevel=4)


@contextlib.contextmanager
def _user_errors() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise UserError(f"fit: {error}") from error
