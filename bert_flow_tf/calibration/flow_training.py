"""Train the flow of a `fit`, on an array or on blocks."""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

from bert_flow_tf.calibration.methods import Method
from bert_flow_tf.calibration.settings import FitSettings
from bert_flow_tf.common.errors import ArgumentError, UserError, warn_user
from bert_flow_tf.common.losses import BITS
from bert_flow_tf.common.records import Setting
from bert_flow_tf.common.settings import flow_config
from glow.config import GlowConfig

if TYPE_CHECKING:
    from glow.calibrator import FlowCalibrator, Loss

# The default 300 steps are like the original's 269 on the STS Benchmark. After fewer than 100,
# a flow may be worse than none.
DEFAULT_STEPS = 300
_WARNED_STEPS = 100

# A function of this type takes a random generator and returns blocks of embeddings [k, D].
Blocks = Callable[[np.random.Generator], Iterable[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class TrainedFlow:
    """A fitted calibrator, and what a record says of its training."""

    calibrator: "FlowCalibrator"
    settings: dict[str, Setting]


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

    @property
    def unit(self) -> str:
        """The unit of the losses."""
        return BITS if self.loss is None else "loss of its own"

    def check(self, method: Method) -> None:
        """Raise `ArgumentError` for invalid hooks, or a method without a flow."""
        if not self.given:
            return
        # Importing it takes seconds.
        from glow.calibrator import check_hooks

        try:
            check_hooks(self.loss, self.callbacks)
        except ValueError as error:
            raise ArgumentError(str(error)) from error
        if method.flow is not True:
            given = " and ".join(self.given)
            found = f"found with the method {method.name}"
            raise ArgumentError(f"{given}: {found}, expected the name of one with a flow")

    @property
    def given(self) -> list[str]:
        """The names of those that are given."""
        return [name for name, value in vars(self).items() if value]


def new_calibrator(
    settings: FitSettings, rows: int, hooks: Hooks, show_progress_bar: bool | None
) -> "FlowCalibrator":
    """Return the calibrator that the settings describe, not yet fitted."""
    # scikit-learn loads with it, which encoding does not need.
    from glow.calibrator import FlowCalibrator

    return FlowCalibrator(
        flow_config(settings.flow_model_config),
        epochs=default_epochs(settings, rows),
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        seed=settings.seed,
        show_progress_bar=show_progress_bar,
        loss=hooks.loss,
        callbacks=hooks.callbacks,
    )


def train_flow(
    calibrator: "FlowCalibrator",
    embeddings: np.ndarray,
    held_out: np.ndarray | None,
    *,
    ends_early: bool,
    config_name: str = "",
) -> TrainedFlow:
    """Train on an array [n, D].

    Args:
      held_out: [m, D], whose loss is measured.
      ends_early: True to keep the flow of the step at which their loss was least; False to keep
        the last.
      config_name: of the configuration, for an error of a part of one's own.

    Raises:
      UserError: `FlowCalibrator.fit` fails.
    """
    # Only a flow that sees sentences again can learn them by heart.
    ends_early = ends_early and held_out is not None and calibrator.epochs > 1
    has_own = isinstance(calibrator.config, GlowConfig) and calibrator.config.own
    with user_errors(f"{config_name}: " if config_name and has_own else ""):
        calibrator.fit(embeddings, held_out=held_out, ends_early=ends_early)
    epochs = calibrator.epochs
    if ends_early:
        epochs = calibrator.n_steps_ * calibrator.batch_size / len(embeddings)
    else:
        _warn_of_few_steps(calibrator, len(embeddings))
    return TrainedFlow(calibrator, _recorded(calibrator, epochs))


def train_flow_on_blocks(
    calibrator: "FlowCalibrator", blocks: Blocks, rows: int, show_progress_bar: bool | None
) -> TrainedFlow:
    """Train on blocks that do not fit into memory together.

    Args:
      rows: number of rows in all blocks.

    Raises:
      UserError: the epochs have fewer rows than one step, or `FlowCalibrator.fit` fails.
    """
    left = int(rows * calibrator.epochs)
    if left < calibrator.batch_size:
        raise UserError(
            f"fit: found {left} rows in {calibrator.epochs} epochs, expected at least the "
            f"{calibrator.batch_size} of one step"
        )
    generator = np.random.default_rng([calibrator.seed, 2])
    endless = itertools.chain.from_iterable(blocks(generator) for _ in itertools.count())
    hide_bar = None if show_progress_bar is None else not show_progress_bar
    with tqdm(total=left, desc="flow", unit="sentence", disable=hide_bar) as progress:
        while left:
            block = next(endless)[:left]
            with user_errors():
                calibrator.partial_fit(block)
            progress.update(len(block))
            left -= len(block)
    _warn_of_few_steps(calibrator, rows)
    return TrainedFlow(calibrator, _recorded(calibrator, calibrator.epochs))


def _recorded(calibrator: "FlowCalibrator", epochs: float) -> dict[str, Setting]:
    return {
        "steps": calibrator.n_steps_,
        "epochs": epochs,
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
