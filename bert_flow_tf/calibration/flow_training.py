"""Train the flow of a `fit`, on an array or on blocks."""

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from tqdm import tqdm

from bert_flow_tf.calibration.methods import Method, cloned
from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.common.errors import ArgumentError, UserError, warn_user
from bert_flow_tf.common.settings import flow_config
from glow.config import GlowConfig

if TYPE_CHECKING:
    from glow.calibrator import FlowCalibrator, Loss

# The default 300 steps are like the original's 269 on the STS Benchmark. After fewer than 100,
# a flow may be worse than none.
DEFAULT_STEPS = 300
_WARNED_STEPS = 100


class Blocks(Protocol):
    """Embeddings that do not fit into memory together."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def blocks(self, generator: np.random.Generator) -> Iterable[np.ndarray]:
        """Yield all rows once, as blocks [k, D] in random order."""


def new_calibrator(
    method: Method,
    settings: FitSettings,
    loss: "Loss | None" = None,
    callbacks: Sequence[Any] = (),
) -> "FlowCalibrator | None":
    """Return the unfitted calibrator of a method's flow; None without a flow.

    Its epochs depend on the number of rows, see `train_flow`.

    Raises:
      ArgumentError: an argument is invalid, or has no effect with the method.
    """
    given = [name for name, one in (("loss", loss), ("callbacks", callbacks)) if one]
    if given and (not method.has_flow or method.calibrator is not None):
        found = f"found with the method {method.name}"
        raise ArgumentError(f"{' and '.join(given)}: {found}, expected the name of one with a flow")
    if not method.has_flow:
        return None
    # scikit-learn loads with it, which encoding does not need.
    from glow.calibrator import FlowCalibrator

    calibrator: FlowCalibrator = (
        cloned(method.calibrator)
        if method.calibrator is not None
        else FlowCalibrator(
            flow_config(settings.flow_model_config),
            batch_size=settings.batch_size,
            learning_rate=settings.learning_rate,
            seed=settings.seed,
            loss=loss,
            callbacks=callbacks,
        )
    )
    try:
        calibrator.check_settings()
    except ValueError as error:
        raise ArgumentError(str(error)) from error
    return calibrator


def train_flow(
    calibrator: "FlowCalibrator",
    settings: FitSettings | None,
    vectors: np.ndarray | Blocks,
    held_out: np.ndarray | None,
    *,
    bits_before: float = 0.0,
    show_progress_bar: bool | None = None,
) -> None:
    """Fit a calibrator.

    Without epochs in the settings, they are enough for 300 steps, and, if this is more than one,
    the flow is that of the step at which the held-out rows' loss was least: only a flow that sees
    sentences again can learn them by heart. The calibrator's `epochs` become those that it took.

    Args:
      settings: the calibrator's; None for a calibrator of a user, who has set its epochs.
      vectors: [n, D], or blocks of them.
      held_out: [m, D], whose loss is measured.
      bits_before: bits per dimension that maps before the flow add to its loss.

    Raises:
      UserError: the epochs have fewer rows than one step, or `FlowCalibrator.fit` fails.
    """
    rows = len(vectors)
    ends_early = False
    # An error of a part of one's own needs the name of its file.
    name = ""
    if settings is not None:
        enough = math.ceil(DEFAULT_STEPS * settings.batch_size / rows)
        calibrator.epochs = settings.epochs or float(max(1, enough))
        ends_early = settings.epochs is None and held_out is not None and calibrator.epochs > 1
        has_own_keys = isinstance(calibrator.config, GlowConfig) and calibrator.config.own
        name = f"{settings.flow_model_config}: " if has_own_keys else ""
    if show_progress_bar is not None:
        calibrator.show_progress_bar = show_progress_bar
    if bits_before and calibrator.loss is None:
        calibrator.loss = lambda flow, u, step: flow.bits_per_dim(u, step) + bits_before
    if isinstance(vectors, np.ndarray):
        with user_errors(name):
            calibrator.fit(vectors, held_out=held_out, ends_early=ends_early)
    else:
        _train_on_blocks(calibrator, vectors, show_progress_bar)
    if ends_early:
        calibrator.epochs = calibrator.n_steps_ * calibrator.batch_size / rows
    elif calibrator.n_steps_ < _WARNED_STEPS:
        advice = (
            f"after fewer than {_WARNED_STEPS}, a flow may be worse than none: use more sentences "
            "or epochs"
        )
        warn_user(f"fit: {calibrator.n_steps_} steps on {rows} sentences; {advice}")


def _train_on_blocks(
    calibrator: "FlowCalibrator", vectors: Blocks, show_progress_bar: bool | None
) -> None:
    left = int(len(vectors) * calibrator.epochs)
    if left < calibrator.batch_size:
        raise UserError(
            f"fit: found {left} rows in {calibrator.epochs} epochs, expected at least the "
            f"{calibrator.batch_size} of one step"
        )
    # One bar shows all blocks.
    calibrator.show_progress_bar = False
    hide_bar = None if show_progress_bar is None else not show_progress_bar
    generator = np.random.default_rng([calibrator.seed, 2])
    endless = itertools.chain.from_iterable(vectors.blocks(generator) for _ in itertools.count())
    with tqdm(total=left, desc="flow", unit="sentence", disable=hide_bar) as progress:
        while left:
            block = next(endless)[:left]
            with user_errors():
                calibrator.partial_fit(block)
            progress.update(len(block))
            left -= len(block)


@contextlib.contextmanager
def user_errors(prefix: str = "") -> Iterator[None]:
    """Raise a calibration's `ValueError` as a `UserError` of `fit`."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"fit: {prefix}{error}") from error
