"""How a flow learns: maximum likelihood by TF1's Adam, as the original trains it."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from glow.flow import Glow
from glow.optimizer import AdamWeightDecay, apply_clipped

# Per call: enough steps for the call itself to cost nothing, few enough rows for what is gathered to stay small.
_STEPS_PER_CALL = 32
_ROWS_PER_CALL = 4096

Batches = Sequence[np.ndarray] | np.ndarray


class FlowTrainer:
    """Steps of the original's optimiser on the loss of a flow, with a constant learning rate.

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
        self._steps = tf.function(
            self._take_steps,
            input_signature=[tf.TensorSpec([None, None, flow.event_size], flow.dtype, name="u")],
            autograph=False,
        )

    def _take_steps(self, u: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Loss before each step and its gradient's norm, both [k], of the batches `u` [k, rows, D], one after another.

        In TensorFlow's own loop: the operations are so small that a call from Python would be much of a step's time.
        """
        count = tf.shape(u)[0]

        def step(i: tf.Tensor, losses: tf.TensorArray, norms: tf.TensorArray) -> tuple:
            with tf.GradientTape() as tape:
                bits_per_dim = tf.reduce_mean(self.flow.bits_per_dim(u[i]))
                loss = 2.0 * bits_per_dim
            norm = apply_clipped(self.optimizer, tape.gradient(loss, self._trained), self._trained)
            return i + 1, losses.write(i, bits_per_dim), norms.write(i, norm)

        begin = (0, tf.TensorArray(u.dtype, count), tf.TensorArray(u.dtype, count))
        # One after the other, as each reads the variables that the one before has written.
        _, losses, norms = tf.while_loop(lambda i, *_: i < count, step, begin, parallel_iterations=1)
        return losses.stack(), norms.stack()

    def train(self, X: np.ndarray, batches: Batches, show_progress_bar: bool | None = None) -> np.ndarray:
        """Loss before each step, in bits per dimension: float32 [number of batches].

        If it fails or is interrupted, flow and optimiser are again what they were before.

        Args:
          X: float32 [n, D].
          batches: sequence of int64 arrays, the rows of each step.
          show_progress_bar: None shows it on a terminal only.

        Raises:
          ValueError: a loss, a gradient or a weight is not finite.
        """
        before = self.state()
        losses: list[float] = []
        hidden = None if show_progress_bar is None else not show_progress_bar
        try:
            with tqdm(total=len(batches), desc="flow", unit="step", disable=hidden) as progress:
                for stack in _stacked(batches):
                    step_losses, norms = (values.numpy() for values in self._steps(tf.constant(X[stack])))
                    finite = np.isfinite(step_losses) & np.isfinite(norms)
                    if not finite.all():
                        i = int(np.argmin(finite))
                        raise ValueError(
                            f"found a loss of {step_losses[i]} with a gradient of norm {norms[i]} at step "
                            f"{len(losses) + i + 1} of {len(batches)}, expected finite ones (try a smaller learning "
                            "rate, or embeddings of smaller norm)"
                        )
                    losses.extend(step_losses)
                    progress.update(len(stack))
            if not all(np.isfinite(variable.numpy()).all() for variable in self.flow.variables):
                raise ValueError("found weights of the flow that are not finite, try a smaller learning rate")
        except BaseException:
            self.restore(before)
            raise
        return np.asarray(losses, np.float32)

    def state(self) -> list[np.ndarray]:
        """Arrays of the flow's variables and of the optimiser's, in order of creation, for `restore`."""
        return [variable.numpy() for variable in (*self.flow.variables, *self.optimizer.variables)]

    def restore(self, state: Sequence[np.ndarray]) -> None:
        for variable, value in zip((*self.flow.variables, *self.optimizer.variables), state, strict=True):
            variable.assign(value)


def _stacked(batches: Batches) -> Iterator[np.ndarray]:
    """Yields int64 arrays [k, rows] of consecutive batches of one size, one array per call."""
    for rows, same_size in itertools.groupby(batches, key=len):
        alike = list(same_size)
        count = min(_STEPS_PER_CALL, max(1, _ROWS_PER_CALL // rows))
        for start in range(0, len(alike), count):
            yield np.stack(alike[start : start + count])
