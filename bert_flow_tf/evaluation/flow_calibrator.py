"""The flow as a calibration of any embedding matrix: scikit-learn's `fit` and `transform` around `glow.flow.Glow`."""

import math

import numpy as np
import tensorflow as tf
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from tqdm import tqdm

from bert_flow_tf.evaluation.calibration import EmbeddingError, checked_embeddings
from bert_flow_tf.optimization import AdamWeightDecay, apply_clipped
from glow.config import GlowConfig
from glow.flow import Glow

_ROWS_PER_CALL = 4096


class FlowCalibrator(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Embeddings u [n, D] to latents z [n, D] of a flow that is learned on them without labels.

        calibrator = FlowCalibrator(seed=1).fit(embeddings)
        z = calibrator.transform(embeddings)
        log_density = calibrator.score_samples(embeddings)

    Training is the original's: maximum likelihood, TF1's Adam with weight decay at a constant rate, gradients clipped
    to global norm 1. A step's loss is that of `batch_size / 2` pairs: the mean loss of the first sentences plus that of
    the second ones, so twice the mean over the batch. Batches are of rows in a random order, drawn anew every epoch.
    Li et al. 2020, sections 3 and 4.

    Args:
      config: name of a shipped flow configuration, or a JSON file; D must be a multiple of 2 to its number of levels.
      epochs: times that each row is seen, may be a fraction.
      batch_size: rows a step; 64 are the 32 pairs of the original.
      learning_rate: constant.
      seed: of the order of the rows and of the flow's initial values; 0 or more.
      data_dependent_init: set every actnorm by the first batch before training. The original defines this and never
        runs it. Constant channels are safe, see `glow.actnorm`.
      show_progress_bar: None shows it on a terminal only.

    Attributes:
      flow_: the `glow.flow.Glow`.
      n_steps_: steps done.
      losses_: float32 [n_steps_], each step's mean loss before it, in bits per dimension.
    """

    def __init__(
        self,
        config="config_l3_d3_w32",
        epochs=1.0,
        batch_size=64,
        learning_rate=1e-3,
        seed=1234,
        data_dependent_init=False,
        show_progress_bar=None,
    ):
        self.config = config
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed
        self.data_dependent_init = data_dependent_init
        self.show_progress_bar = show_progress_bar

    def fit(self, X, y=None):
        """The calibrator itself, after learning a new flow on `X` [n, D].

        A failed `fit` leaves an earlier flow as it was.

        Raises:
          EmbeddingError: a value is not finite, there are fewer rows than a batch, an argument or D does not fit, or
            the loss or the weights do not stay finite.
        """
        X = _as_float32(checked_embeddings(self, X, reset=True))
        steps = self._steps(len(X))
        try:
            flow = Glow(GlowConfig.load(self.config), X.shape[1], seed=self.seed)
        except ValueError as error:
            raise EmbeddingError(f"flow: {error}") from error
        batches = self._batches(len(X), steps)
        if self.data_dependent_init:
            try:
                flow.initialize_from_data(X[batches[0]])
            except ValueError as error:
                raise EmbeddingError(f"flow: {error}") from error
        losses = self._train(flow, X, batches)
        self.flow_, self.n_steps_, self.losses_ = flow, steps, losses
        self._compile()
        return self

    def _steps(self, rows):
        if self.batch_size < 1:
            raise EmbeddingError(f"batch_size: found {self.batch_size}, expected 1 or more")
        if not (math.isfinite(self.epochs) and self.epochs > 0):
            raise EmbeddingError(f"epochs: found {self.epochs}, expected a number above 0")
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0):
            raise EmbeddingError(f"learning_rate: found {self.learning_rate}, expected a number above 0")
        steps = int(rows / self.batch_size * self.epochs)
        if rows < self.batch_size or not steps:
            samples = "1 sample" if rows == 1 else f"{rows} samples"
            raise EmbeddingError(
                f"flow: found {samples} and {self.epochs} epochs, expected at least one step's {self.batch_size}"
            )
        return steps

    def _batches(self, rows, steps):
        """int64 [steps, batch_size] of row numbers: one permutation after the other, without a break between epochs."""
        generator = np.random.default_rng([self.seed, 0])
        needed = steps * self.batch_size
        orders = [generator.permutation(rows) for _ in range(math.ceil(needed / rows))]
        return np.concatenate(orders)[:needed].reshape(steps, self.batch_size)

    def _train(self, flow, X, batches):
        variables = list(flow.trainable_variables)
        optimizer = AdamWeightDecay(self.learning_rate, name="flow_adam")
        optimizer.build(variables)

        @tf.function(input_signature=[tf.TensorSpec([self.batch_size, X.shape[1]], tf.float32)])
        def step(u):
            with tf.GradientTape() as tape:
                bits_per_dim = tf.reduce_mean(flow.bits_per_dim(u))
                loss = 2.0 * bits_per_dim
            norm = apply_clipped(optimizer, tape.gradient(loss, variables), variables)
            return bits_per_dim, norm

        losses = np.empty(len(batches), np.float32)
        hidden = None if self.show_progress_bar is None else not self.show_progress_bar
        for i, batch in enumerate(tqdm(batches, desc="flow", unit="step", disable=hidden)):
            losses[i], norm = (value.numpy() for value in step(tf.constant(X[batch])))
            if not (np.isfinite(losses[i]) and np.isfinite(norm)):
                raise EmbeddingError(
                    f"flow: found a loss of {losses[i]} with a gradient of norm {norm} at step {i + 1} of "
                    f"{len(batches)}, expected finite ones (a smaller learning rate, or embeddings of smaller norm)"
                )
        if not all(np.isfinite(variable.numpy()).all() for variable in flow.variables):
            raise EmbeddingError("flow: found weights that are not finite, expected a smaller learning rate")
        return losses

    def _compile(self):
        signature = [tf.TensorSpec([None, self.flow_.event_size], tf.float32)]
        self._forward = tf.function(self.flow_.forward, input_signature=signature)
        self._inverse = tf.function(self.flow_.inverse, input_signature=signature)
        self._log_prob = tf.function(self.flow_.log_prob, input_signature=signature)

    def transform(self, X):
        """The latents z, float32 [n, D], of `X` [n, D]."""
        check_is_fitted(self, "flow_")
        return self._in_parts(self._forward, X)

    def inverse_transform(self, X):
        """The embeddings, float32 [n, D], whose latents are `X` [n, D]."""
        check_is_fitted(self, "flow_")
        return self._in_parts(self._inverse, X)

    def score_samples(self, X):
        """The log-density of each row of `X` [n, D] under the flow, float32 [n], in nats."""
        check_is_fitted(self, "flow_")
        return self._in_parts(self._log_prob, X)

    def _in_parts(self, function, X):
        X = _as_float32(checked_embeddings(self, X, reset=False))
        parts = [function(tf.constant(X[i : i + _ROWS_PER_CALL])).numpy() for i in range(0, len(X), _ROWS_PER_CALL)]
        return np.concatenate(parts)


def _as_float32(X):
    with np.errstate(over="ignore"):
        X = X.astype(np.float32)
    if not np.isfinite(X).all():
        raise EmbeddingError("embeddings: found values beyond float32's range, expected smaller ones")
    return X
