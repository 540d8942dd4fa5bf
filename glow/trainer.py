"""Train a flow by maximum likelihood with TF1's Adam, as the original does."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from glow.flow import Glow
from glow.optimizer import AdamWeightDecay, apply_clipped

# Per call: enough steps to make its own cost negligible, few enough rows to keep the gathered copy small.
_STEPS_PER_CALL = 32
_ROWS_PER_CALL = 4096

Batches = Sequence[np.ndarray] | np.ndarray


class FlowTrainer:
    """Take steps of the original's optimiser on a flow's loss, with a constant learning rate.

    A step's loss is that of pairs of sentences, as in the original: the mean loss of the first ones plus that of the
    second ones, so twice the mean over the batch. Li et al. 2020, sections 3 and 4.

    Attributes:
      flow: the `Glow`.
      optimizer: its `AdamWeightDecay`.
    """

    def __init__(self, flow: Glow, learning_rate: float) -> None:
        self.flow = flow
        self._trained = list(flow.trainable_variables)
        self.optimizer = AdamWeightDecay(learning_rate, name="flow_adam")
        self.optimizer.build(self._trained)
        signature = [tf.TensorSpec([None, None, flow.event_size], flow.dtype, name="u")]
        self._steps = tf.function(self._take_steps, input_signature=signature, autograph=False)

    def _take_step(self, u: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            bits_per_dim = tf.reduce_mean(self.flow.bits_per_dim(u))
            loss = 2.0 * bits_per_dim
        apply_clipped(self.optimizer, tape.gradient(loss, self._trained), self._trained)
        return bits_per_dim

    def _take_steps(self, u: tf.Tensor) -> tf.Tensor:
        """Return each step's loss before it, [k], for the batches `u` [k, rows, D]."""
        # A loop in Python would cost as much as the operations, which are small. A step reads what the last one wrote.
        return tf.map_fn(self._take_step, u, parallel_iterations=1, fn_output_signature=u.dtype)

    def train(self, X: np.ndarray, batches: Batches, show_progress_bar: bool | None = None) -> np.ndarray:
        """Take a step for each batch; return the losses before them in bits per dimension, float32 [batches].

        A failure or an interruption restores flow and optimiser.

        Args:
          X: float32 [n, D].
          batches: sequence of int64 arrays, each step's row numbers.
          show_progress_bar: None shows it on a terminal only.

        Raises:
          ValueError: a loss or a weight is not finite.
        """
        before = self.state()
        losses: list[float] = []
        hidden = None if show_progress_bar is None else not show_progress_bar
        try:
            with tqdm(total=len(batches), desc="flow", unit="step", disable=hidden) as progress:
                for stack in _stacked(batches):
                    losses.extend(self._steps(tf.constant(X[stack])).numpy())
                    finite = np.isfinite(losses)
                    if not finite.all():
                        i = int(np.argmin(finite))
                        raise ValueError(
                            f"found a loss of {losses[i]} bits per dimension at step {i + 1} of {len(batches)}, "
                            "expected finite ones (try a smaller learning rate, or embeddings of smaller norm)"
                        )
                    progress.update(len(stack))
            if not all(np.isfinite(variable.numpy()).all() for variable in self.flow.variables):
                raise ValueError("found weights of the flow that are not finite, try a smaller learning rate")
        except BaseException:
            self.restore(before)
            raise
        return np.asarray(losses, np.float32)

    def state(self) -> list[np.ndarray]:
        """Return the values of the flow's and the optimiser's variables, for `restore`."""
        return [variable.numpy() for variable in (*self.flow.variables, *self.optimizer.variables)]

    def restore(self, state: Sequence[np.ndarray]) -> None:
        for variable, value in zip((*self.flow.variables, *self.optimizer.variables), state, strict=True):
            variable.assign(value)


def _stacked(batches: Batches) -> Iterator[np.ndarray]:
    """Yield int64 arrays [k, rows] of consecutive batches of one size, one array per call."""
    for rows, same_size in itertools.groupby(batches, key=len):
        alike = list(same_size)
        count = min(_STEPS_PER_CALL, max(1, _ROWS_PER_CALL // rows))
        for start in range(0, len(alike), count):
            yield np.stack(alike[start : start + count])
