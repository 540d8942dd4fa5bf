"""Train the flow of a `fit`, on an array or on blocks."""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from tqdm import tqdm

from bert_flow_tf.calibration.methods import Method, cloned
from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.common.errors import ArgumentError, UserError, warn_user
from bert_flow_tf.common.records import Setting
from bert_flow_tf.common.settings import flow_config
from glow.config import GlowConfig

if TYPE_CHECKING:
    from glow.calibrator import FlowCalibrator, Loss

# The default 300 steps are like the original's 269 on the STS Benchmark. After fewer than 100,
# a flow may be worse than none.
DEFAULT_STEPS = 300
_WARNED_STEPS = 100


class Blocks(Protocol):
    """Embeddings that do not fit into memory together.

    Attributes:
      rows: their number.
    """

    rows: int

    def blocks(self, generator: np.random.Generator) -> Iterable[np.ndarray]:
        """Yield all rows once, as blocks [k, D] in random order."""


def default_epochs(settings: FitSettings, rows: int) -> float:
    """Return the epochs that are asked for, or enough for 300 steps."""
    enough = math.ceil(DEFAULT_STEPS * settings.batch_size / rows)
    return settings.epochs or float(max(1, enough))


@dataclasses.dataclass(frozen=True)
class Hooks:
    """Additions of a program to the training of a flow.

    Attributes:
      loss, callbacks: see `glow.FlowCalibrator`.
    """

    loss: "Loss | None" = None
    callbacks: Sequence[Any] = ()

    def check(self, method: Method) -> None:
        """Raise `ArgumentError` for invalid hooks, or a method without a flow."""
        if method.calibrator is not None:
            with user_errors():
                method.calibrator.check_settings()
        if not self.given:
            return
        # Importing it takes seconds.
        from glow.calibrator import check_hooks

        try:
            check_hooks(self.loss, self.callbacks)
        except ValueError as error:
            raise ArgumentError(str(error)) from error
        if not method.has_flow or method.calibrator is not None:
            given = " and ".join(self.given)
            found = f"found with the method {method.name}"
            raise ArgumentError(f"{given}: {found}, expected the name of one with a flow")

    @property
    def given(self) -> list[str]:
        """The names of those that are given."""
        return [name for name, value in vars(self).items() if value]


NO_HOOKS = Hooks()


def train_flow(
    method: Method,
    settings: FitSettings,
    vectors: np.ndarray | Blocks,
    held_out: np.ndarray | None,
    *,
    hooks: Hooks = NO_HOOKS,
    bits_before: float = 0.0,
    show_progress_bar: bool | None = None,
) -> "FlowCalibrator":
    """Return a calibrator that has learned a flow.

    Its `epochs` are those that it took. Without epochs in the settings, and with more than one, the
    flow is that of the step at which the held-out rows' loss was least: only a flow that sees
    sentences again can learn them by heart.

    Args:
      vectors: [n, D], or blocks of them.
      held_out: [m, D], whose loss is measured.
      bits_before: bits per dimension that maps before the flow add to its loss.

    Raises:
      UserError: the epochs have fewer rows than one step, or `FlowCalibrator.fit` fails.
    """
    rows = len(vectors) if isinstance(vectors, np.ndarray) else vectors.rows
    calibrator = _new_calibrator(method, settings, rows, hooks)
    if show_progress_bar is not None:
        calibrator.show_progress_bar = show_progress_bar
    if bits_before and calibrator.loss is None:
        calibrator.loss = _bits_with(bits_before)
    if not isinstance(vectors, np.ndarray):
        _train_on_blocks(calibrator, vectors, show_progress_bar)
        _warn_of_few_steps(calibrator, rows)
        return calibrator
    is_own = method.calibrator is not None
    ends_early = not is_own and settings.epochs is None and held_out is not None
    ends_early = ends_early and calibrator.epochs > 1
    has_own_parts = isinstance(calibrator.config, GlowConfig) and bool(calibrator.config.own)
    # An error of a part of one's own needs the name of its file.
    with user_errors(f"{settings.flow_model_config}: " if has_own_parts and not is_own else ""):
        calibrator.fit(vectors, held_out=held_out, ends_early=ends_early)
    if ends_early:
        calibrator.epochs = calibrator.n_steps_ * calibrator.batch_size / rows
    else:
        _warn_of_few_steps(calibrator, rows)
    return calibrator


def _new_calibrator(
    method: Method, settings: FitSettings, rows: int, hooks: Hooks
) -> "FlowCalibrator":
    """Return the unfitted calibrator of a method or of the settings."""
    # scikit-learn loads with it, which encoding does not need.
    from glow.calibrator import FlowCalibrator

    if method.calibrator is not None:
        own: FlowCalibrator = cloned(method.calibrator)
        return own
    return FlowCalibrator(
        flow_config(settings.flow_model_config),
        epochs=default_epochs(settings, rows),
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        seed=settings.seed,
        loss=hooks.loss,
        callbacks=hooks.callbacks,
    )


def _bits_with(bits_before: float) -> "Loss":
    """Return the flow's loss in the encoder's space."""
    from glow.calibrator import bits_per_dim_loss

    return lambda flow, u, step: bits_per_dim_loss(flow, u, step) + bits_before


def _train_on_blocks(
    calibrator: "FlowCalibrator", vectors: Blocks, show_progress_bar: bool | None
) -> None:
    left = int(vectors.rows * calibrator.epochs)
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


def recorded_settings(calibrator: "FlowCalibrator") -> dict[str, Setting]:
    """Return what a record says of a flow's training."""
    return {
        "steps": calibrator.n_steps_,
        "epochs": calibrator.epochs,
        "batch_size": calibrator.batch_size,
        "learning_rate": calibrator.learning_rate,
    }


def _warn_of_few_steps(calibrator: "FlowCalibrator", rows: int) -> None:
    if calibrator.n_steps_ < _WARNED_STEPS:
        advice = (
            f"after fewer than {_WARNED_STEPS}, a flow may be worse than none: use more sentences "
            "or epochs"
        )
        warn_user(f"fit: {calibrator.n_steps_} steps on {rows} sentences; {advice}")


@contextlib.contextmanager
def user_errors(prefix: str = "") -> Iterator[None]:
    """Raise a calibration's `ValueError` as a `UserError` of `fit`."""
    try:
        yield
    except ValueError as error:
        raise UserError(f"fit: {prefix}{error}") from error
