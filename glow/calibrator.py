"""The flow as a scikit-learn transformer, and its training."""

import dataclasses
import itertools
import logging
import math
import os
import pathlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags, check_array
from sklearn.utils.validation import check_is_fitted, validate_data
from tqdm import tqdm

from glow.chain import Chain
from glow.config import DEFAULT_CONFIG, GlowConfig
from glow.flow import Glow
from glow.maps import Forward, forward_rows, in_blocks
from glow.number_types import is_whole_number
from glow.optimizer import AdamWeightDecay, apply_clipped
from glow.saved import export_calibration, read_maps, write_maps
from glow.tracing import check_process, traced_once
from glow.user_warnings import warn_user

logger = logging.getLogger(__name__)

# More steps per call would need more memory for their rows; fewer would spend much of the time on
# calls.
_STEPS_PER_CALL = 32
_DTYPES = (np.float64, np.float32)
_ROWS_PER_CALL = 4096

# A function from a flow, embeddings [n, D] and the step (None outside of training) to each row's
# loss [n]. `Glow.bits_per_dim` is one.
Loss = Callable[[Glow, tf.Tensor, tf.Tensor | None], tf.Tensor]


class FlowTrainer:
    """Train a flow by maximum likelihood with the original's optimiser.

    The learning rate is constant. The loss is twice the batch's mean of `Glow.bits_per_dim`,
    because the original (Li et al. 2020, sections 3 and 4) adds the means over the first and over
    the second sentences of its pairs.

    Args:
      loss: each row's loss, instead of `Glow.bits_per_dim`.
    """

    def __init__(self, flow: Glow, learning_rate: float, loss: Loss | None = None) -> None:
        self.flow = flow
        self.held_out_losses: dict[int, float] = {}
        self._loss: Loss = loss or Glow.bits_per_dim
        self._fixed_forward: Forward | None = None
        self._trained = list(flow.trainable_variables)
        self.optimizer = AdamWeightDecay(learning_rate, name="flow_adam")
        self.optimizer.build(self._trained)
        # Loop over the batches [k, rows, D] in the graph, because a Python loop would double the
        # time per step.
        self._take_steps = traced_once(
            lambda u: tf.map_fn(self._step, u, parallel_iterations=1, fn_output_signature=u.dtype),
            tf.TensorSpec([None, None, flow.event_size], flow.dtype),
        )

    def _step(self, u: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = self._loss(self.flow, u, self.optimizer.iterations)
            shape = getattr(losses, "shape", None)
            if shape is None or len(shape) != 1 or shape[0] not in (None, u.shape[0]):
                found = type(losses).__name__ if shape is None else f"the shape {list(shape)}"
                raise ValueError(f"loss: found {found}, expected [n], one number for each row of u")
            mean = tf.reduce_mean(losses)
            loss = 2.0 * mean
        apply_clipped(self.optimizer, tape.gradient(loss, self._trained), self._trained)
        return mean

    def train(
        self,
        X: np.ndarray,
        batches: Iterable[np.ndarray],
        steps: int,
        show_progress_bar: bool | None = None,
        held_out: np.ndarray | None = None,
        callbacks: Sequence[tf_keras.callbacks.Callback] = (),
        *,
        ends_early: bool = True,
    ) -> np.ndarray:
        """Take one step per batch of row indices; return their losses.

        The losses, float32 [steps], are from before each step, in bits per dimension. An exception
        changes nothing. With `held_out` [m, D], `held_out_losses` has these rows' by step; with
        `ends_early`, too, end where they are least, with the losses of the steps up to there.

        The callbacks are called as `tf_keras.Model.fit` calls them with several steps per
        execution: each call of at most 32 steps is an epoch of one execution, and the held-out rows
        are one batch of validation.
        """
        start = self.state()
        least = math.inf
        best_step = 0
        best_state = start
        losses: list[float] = []
        dev = None if held_out is None else tf.constant(held_out)
        self.held_out_losses = {}
        self._fixed_forward = None
        stacks = _stacked(batches)
        first = next(stacks)
        hide_bar = None if show_progress_bar is None else not show_progress_bar
        progress = tqdm(total=steps, desc="flow", unit="step", disable=hide_bar)
        if progress.disable and hide_bar is None:
            logger.info("learning the flow, %s steps", f"{steps:,}")
        try:
            hooks = _keras_hooks(callbacks, self.flow, math.ceil(steps / len(first)), len(first))
            with progress:
                for epoch, stack in enumerate(itertools.chain([first], stacks)):
                    hooks.on_epoch_begin(epoch)
                    hooks.on_train_batch_begin(0)
                    found = self._take_steps(tf.constant(X[stack])).numpy()
                    _check_finite(found, len(losses), steps)
                    losses.extend(found)
                    progress.update(len(stack))
                    logs = {"loss": float(np.mean(found))}
                    hooks.on_train_batch_end(len(stack) - 1, logs)
                    if dev is not None:
                        loss = self._validate(dev, hooks)
                        logs = {**logs, "val_loss": loss}
                        if math.isfinite(loss):
                            self.held_out_losses[len(losses)] = loss
                        if loss < least:
                            least = loss
                            best_step = len(losses)
                            best_state = self.state()
                    hooks.on_epoch_end(epoch, logs)
                    if hooks.model.stop_training:
                        break
            if dev is not None and not best_step:
                raise ValueError("held_out: found no finite loss, expected one")
            if dev is not None and ends_early:
                self.restore(best_state)
                del losses[best_step:]
            if not all(np.isfinite(variable.numpy()).all() for variable in self.flow.variables):
                raise ValueError(
                    "found flow weights that are not finite, try a smaller learning rate"
                )
        except BaseException:
            self.restore(start)
            raise
        hooks.on_train_end(logs)
        return np.asarray(losses, np.float32)

    def _validate(self, held_out: tf.Tensor, hooks: tf_keras.callbacks.CallbackList) -> float:
        """Return the mean loss of rows [m, D] that take no step."""
        hooks.on_test_begin()
        hooks.on_test_batch_begin(0)
        loss = float(np.mean(self._loss(self.flow, held_out, None)))
        hooks.on_test_batch_end(0, {"loss": loss})
        hooks.on_test_end({"loss": loss})
        return loss

    def forward(self, u: np.ndarray) -> np.ndarray:
        """Return latents of rows [n, D], by the folded flow if possible."""
        if self._fixed_forward is None:
            self._fixed_forward = self.flow.fixed_forward()
        return forward_rows(self._fixed_forward, u)

    def state(self) -> list[np.ndarray]:
        return [variable.numpy() for variable in (*self.flow.variables, *self.optimizer.variables)]

    def restore(self, state: Sequence[np.ndarray]) -> None:
        self._fixed_forward = None
        for variable, value in zip(
            (*self.flow.variables, *self.optimizer.variables), state, strict=True
        ):
            variable.assign(value)


def _keras_hooks(
    callbacks: Sequence[tf_keras.callbacks.Callback], flow: Glow, epochs: int, steps: int
) -> tf_keras.callbacks.CallbackList:
    """Begin a training of Keras callbacks; return them as one.

    Their `model` has the flow's weights and `stop_training`.
    """
    model = tf_keras.Model(name="flow_model")
    model.flow = flow
    model.stop_training = False
    hooks = tf_keras.callbacks.CallbackList(
        list(callbacks), add_history=True, model=model, verbose=0, epochs=epochs, steps=steps
    )
    hooks.on_train_begin()
    return hooks


def _stacked(batches: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield int64 [k, rows]: k batches of equal size, for one call."""
    for rows, same_size in itertools.groupby(batches, key=len):
        count = min(_STEPS_PER_CALL, max(1, _ROWS_PER_CALL // rows))
        while stack := list(itertools.islice(same_size, count)):
            yield np.stack(stack)


def _check_finite(losses: np.ndarray, done: int, steps: int) -> None:
    """Raise `ValueError` for a loss that is not finite.

    Args:
      done, steps: the steps before these and of the whole training, for the message.
    """
    finite = np.isfinite(losses)
    if not finite.all():
        i = int(np.argmin(finite))
        at = f"at step {done + i + 1} of {steps}"
        raise ValueError(f"found a loss of {losses[i]} {at}, try a smaller learning rate")


class FlowCalibrator(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Learn a flow on embeddings without labels, and map them to latents.

        >>> embeddings = 3.0 + np.random.default_rng(0).normal(size=[500, 8])
        >>> calibrator = FlowCalibrator(epochs=20, show_progress_bar=False).fit(embeddings)
        >>> calibrator.transform(embeddings).shape
        (500, 8)
        >>> bool(calibrator.losses_[-1] < calibrator.losses_[0])
        True

    See `FlowTrainer` for the loss. Each epoch shuffles the rows.

    Args:
      config: name of a shipped flow configuration, a JSON file, or a `GlowConfig`. Embeddings of
        fewer than 2 ** n_levels channels get fewer levels, with a warning.
      epochs: passes over the rows; may be a fraction.
      batch_size: rows per step, by default the original's 32 pairs; if `X` has fewer, a step takes
        all, with a warning.
      seed: seed of the order of the rows and of the flow's initial values; 0 or more.
      data_dependent_init: initialise every actnorm from the first batch, see
        `glow.bijectors.ActNorm`. The original defines this but never runs it.
      show_progress_bar: None to show it on a terminal only.
      loss: function `loss(flow, u, step)` that returns each row's loss, [n], of embeddings `u` [n,
        D], for terms of one's own; None for `Glow.bits_per_dim`. `step` is None for held-out rows.
        The embeddings are those before the flow.
      callbacks: Keras callbacks of `fit`. To them, each call of at most 32 steps is an epoch;
        `logs` has `loss`, its mean, and with held-out rows `val_loss`.

    Attributes:
      flow_: the `glow.flow.Glow`.
      config_: its `GlowConfig`.
      n_steps_: number of steps taken.
      losses_: float32 [n_steps_], the mean loss over each step's batch, before the step: of
        `bits_per_dim`, or of `loss` if it is given.
      held_out_losses_: the same mean over the rows `held_out` of `fit`, by step; also of steps
        after the one at which training ended.
    """

    def __init__(
        self,
        config: str | GlowConfig = DEFAULT_CONFIG,
        epochs: float = 1.0,
        batch_size: int = 64,
        learning_rate: float = 1e-3,
        seed: int = 1234,
        data_dependent_init: bool = False,
        show_progress_bar: bool | None = None,
        loss: Loss | None = None,
        callbacks: Sequence[tf_keras.callbacks.Callback] = (),
    ) -> None:
        self.config = config
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed
        self.data_dependent_init = data_dependent_init
        self.show_progress_bar = show_progress_bar
        self.loss = loss
        self.callbacks = callbacks

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def fit(
        self,
        X: ArrayLike,
        y: None = None,
        held_out: ArrayLike | None = None,
        *,
        ends_early: bool = True,
    ) -> "FlowCalibrator":
        """Learn a new flow on `X` [n, D]; a failure changes nothing.

        The loss of the rows `held_out` [m, D] is measured after every few steps. All steps are
        taken; with `ends_early`, the flow is that of the step at which this loss was least.

        Raises:
          ValueError: a value is not finite, there are fewer than 2 rows or channels, an argument is
            invalid, or a loss or a weight is not finite.
        """
        check_process()
        self.check_settings()
        u = self._checked(X, new=True)
        dev = None if held_out is None else self._checked(held_out, new=True)
        if dev is not None and dev.shape[1] != u.shape[1]:
            raise ValueError(
                f"held_out: found {dev.shape[1]} channels, expected the {u.shape[1]} of X"
            )
        rows = min(self.batch_size, len(u))
        steps = int(len(u) / rows * self.epochs)
        if not steps:
            raise ValueError(
                f"found {len(u)} samples and {self.epochs} epochs, which gives 0 steps of {rows}"
            )
        trainer = self._new_trainer(u, next(self._batches(len(u), rows)))
        batches = itertools.islice(self._batches(len(u), rows), steps)
        losses = trainer.train(
            u,
            batches,
            steps,
            self.show_progress_bar,
            dev,
            callbacks=self.callbacks,
            ends_early=ends_early,
        )
        validate_data(self, X, skip_check_array=True)
        self._set_fitted(trainer, losses, trainer.held_out_losses)
        return self

    def partial_fit(self, X: ArrayLike, y: None = None) -> "FlowCalibrator":
        """Learn from the next part `X` [n, D] of a stream.

        The first call creates a flow; later calls, and calls after `fit`, train it further. Each
        row is used once, so some batches are larger than `batch_size`. Errors are those of `fit`;
        all parts must have the same D.
        """
        self.check_settings()
        new = not hasattr(self, "flow_")
        u = self._checked(X, new=new)
        order = np.random.default_rng([self.seed, 1, 0 if new else self.n_steps_]).permutation(
            len(u)
        )
        batches = np.array_split(order, max(1, len(u) // self.batch_size))
        trainer = self._new_trainer(u, batches[0]) if new else self._trainer
        trainer.optimizer.learning_rate = self.learning_rate
        losses = trainer.train(u, batches, len(batches), self.show_progress_bar)
        validate_data(self, X, reset=new, skip_check_array=True)
        all_losses = losses if new else np.concatenate([self.losses_, losses])
        self._set_fitted(trainer, all_losses, {})
        return self

    def check_settings(self) -> None:
        """Raise `ValueError` for the first invalid argument, as `fit` does."""
        if not is_whole_number(self.batch_size) or self.batch_size < 1:
            raise ValueError(
                f"batch_size: found {self.batch_size}, expected a whole number of 1 or more"
            )
        if self.seed < 0:
            raise ValueError(f"seed: found {self.seed}, expected 0 or more")
        if self.loss is not None and not callable(self.loss):
            raise ValueError(
                f"loss: found {self.loss!r:.60}, expected a function loss(flow, u, step)"
            )
        if not isinstance(self.callbacks, list | tuple):
            found = type(self.callbacks).__name__
            raise ValueError(f"callbacks: found {found}, expected a list of tf_keras.callbacks")
        for one in self.callbacks:
            if not isinstance(one, tf_keras.callbacks.Callback):
                found = f"{type(one).__module__}.{type(one).__qualname__}"
                raise ValueError(f"callbacks: found {found}, expected callbacks of tf_keras")
        for name, limit in (("epochs", 1e15), ("learning_rate", math.inf)):
            value = getattr(self, name)
            if not 0 < value < limit:
                raise ValueError(
                    f"{name}: found {value}, expected a number above 0 and below {limit:g}"
                )

    def _new_trainer(self, X: np.ndarray, first_batch: np.ndarray) -> FlowTrainer:
        n, width = X.shape
        if width < 2 or n < 2:
            raise ValueError(
                f"found n_samples = {n} and n_features = {width}, expected 2 or more of each"
            )
        if n < self.batch_size:
            warn_user(
                f"batch_size: found {self.batch_size} with {n} samples; a step takes them all"
            )
        config = (
            self.config if isinstance(self.config, GlowConfig) else GlowConfig.load(self.config)
        )
        levels = width.bit_length() - 1
        if levels < config.n_levels:
            warn_user(
                f"config: found {config.n_levels} levels with {width} channels, using {levels}"
            )
            config = dataclasses.replace(config, n_levels=levels)
        flow = Glow(config, width, seed=self.seed)
        if self.data_dependent_init:
            flow.initialize_from_data(X[first_batch])
        return FlowTrainer(flow, self.learning_rate, self.loss)

    def _batches(self, n: int, rows: int) -> Iterator[np.ndarray]:
        """Yield row indices, int64 [rows], without end; batches may span epochs."""
        generator = np.random.default_rng([self.seed, 0])
        left = generator.permutation(n)
        while True:
            if len(left) < rows:
                left = np.concatenate([left, generator.permutation(n)])
            yield left[:rows]
            left = left[rows:]

    def _set_fitted(
        self, trainer: FlowTrainer, losses: np.ndarray, held_out_losses: dict[int, float]
    ) -> None:
        self.losses_ = losses
        self.n_steps_ = len(losses)
        self.held_out_losses_ = held_out_losses
        self._trainer = trainer
        self.flow_ = trainer.flow
        self.config_ = trainer.flow.config

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Return the latents z, float32 [n, D], of `X` [n, D].

        It uses the weights of the last `fit`; after assigning variables by hand, call
        `flow_.forward`.
        """
        check_is_fitted(self, "flow_")
        return self._trainer.forward(self._checked(X))

    def inverse_transform(self, X: ArrayLike) -> np.ndarray:
        """Return the embeddings, float32 [n, D], whose latents are `X` [n, D]."""
        return self._call_flow("inverse", X)

    def score_samples(self, X: ArrayLike) -> np.ndarray:
        """Return the log-density of each row, float32 [n], in nats."""
        return self._call_flow("log_prob", X)

    def score(self, X: ArrayLike, y: None = None) -> float:
        """Return the mean log-density of the rows, in nats."""
        return float(np.mean(self.score_samples(X), dtype=np.float64))

    def sample(self, n_samples: int = 1, seed: int = 0) -> np.ndarray:
        """Draw embeddings, float32 [n_samples, D]; the seed determines them."""
        check_is_fitted(self, "flow_")
        return self.flow_.sample(n_samples, seed).numpy()

    def _call_flow(self, method: str, X: ArrayLike) -> np.ndarray:
        check_is_fitted(self, "flow_")
        return in_blocks(getattr(self.flow_, method), self._checked(X))

    def _checked(self, X: ArrayLike, *, new: bool = False) -> np.ndarray:
        # The values are checked below, because the message names the row.
        if new:
            checked = check_array(X, estimator=self, dtype=_DTYPES, ensure_all_finite=False)
        else:
            checked = validate_data(self, X, reset=False, dtype=_DTYPES, ensure_all_finite=False)
        with np.errstate(over="ignore"):
            values: np.ndarray = checked.astype(np.float32)
        if not (finite := np.isfinite(values)).all():
            row, column = np.argwhere(~finite)[0]
            found = f"{values[row, column]}".replace("nan", "NaN")
            expected = "expected finite numbers"
            raise ValueError(
                f"embeddings: found {found} in row {row}, column {column} (from 0), {expected}"
            )
        return values

    def save(self, folder: str | os.PathLike) -> None:
        """Write the flow into a new folder, which must not exist."""
        check_is_fitted(self, "flow_")
        path = pathlib.Path(folder)
        if path.exists():
            raise FileExistsError(f"{path}: exists, expected a new folder")
        with tempfile.TemporaryDirectory(dir=path.parent) as parent:
            new = pathlib.Path(parent, "new")
            new.mkdir()
            write_maps(new, [self.flow_])
            new.rename(path)

    @classmethod
    def load(cls, folder: str | os.PathLike) -> "FlowCalibrator":
        """Return a fitted calibrator of `save`'s folder; raise `ValueError` for another one.

        Its losses are empty, and `partial_fit` begins with a new optimiser.
        """
        *before, flow = read_maps(folder)
        if before or not isinstance(flow, Glow):
            raise ValueError(f"{folder}: found other maps, expected a flow alone")
        calibrator = cls(flow.config)
        calibrator.n_features_in_ = flow.event_size
        trainer = FlowTrainer(flow, calibrator.learning_rate)
        calibrator._set_fitted(trainer, np.empty(0, np.float32), {})
        return calibrator

    def export(self, path: str | os.PathLike) -> None:
        """Write the flow as `.npz` or `.onnx`, see `glow.saved.export_calibration`."""
        check_is_fitted(self, "flow_")
        export_calibration(Chain([self.flow_], self.flow_.event_size), path)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with arrays, because variables cannot be pickled."""
        state = dict(super().__getstate__())
        if trainer := state.pop("_trainer", None):
            del state["flow_"]
            state |= {"_variables": trainer.state(), "_event_size": trainer.flow.event_size}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        variables = state.pop("_variables", None)
        event_size = state.pop("_event_size", None)
        super().__setstate__(state)
        if variables is not None:
            trainer = FlowTrainer(
                Glow(self.config_, event_size, seed=self.seed),
                self.learning_rate,
                self.loss,
            )
            trainer.restore(variables)
            self._set_fitted(trainer, self.losses_, self.held_out_losses_)
