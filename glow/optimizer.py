"""TF1 BERT's optimiser: Adam without bias correction, decoupled weight decay, gradients clipped to global norm 1."""

import math
import re
import types
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

CLIP_NORM = 1.0
EXCLUDED_FROM_DECAY = ("LayerNorm", "layer_norm", "bias")


class AdamWeightDecay(tf_keras.optimizers.Optimizer):
    """Adam as TF1 BERT has it: no bias correction, epsilon outside the root, weight decay beside the moments.

    ``m = β1 m + (1 - β1) g``, ``v = β2 v + (1 - β2) g²``, ``w = w - lr (m / (sqrt(v) + ε) + decay w)``.

    Gradients are applied as they are given: clip them, and sum them over replicas, before.

    Args:
      learning_rate: a number or a `LearningRateSchedule`.
      decay_rate: weight decay, times the learning rate, of every variable whose name has none of `excluded_from_decay`.
      excluded_from_decay: regular expressions searched for in variable names.
    """

    def __init__(
        self,
        learning_rate: float | tf_keras.optimizers.schedules.LearningRateSchedule,
        decay_rate: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        excluded_from_decay: Sequence[str] = EXCLUDED_FROM_DECAY,
        name: str = "AdamWeightDecay",
    ) -> None:
        # Keras' own decay would take a pass over every variable even where it is 0.
        super().__init__(name=name, weight_decay=None, jit_compile=False)
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.decay_rate = decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.excluded_from_decay = tuple(excluded_from_decay)
        # What a step computes once for all variables, by type; in an object that no checkpoint follows.
        self._of_step = types.SimpleNamespace(scalars={})

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        super().build(var_list)
        if hasattr(self, "_moments"):
            return
        self._moments = [self.add_variable_from_reference(variable, "adam_m") for variable in var_list]
        self._velocities = [self.add_variable_from_reference(variable, "adam_v") for variable in var_list]

    def decays(self, variable_name: str) -> bool:
        """Whether a variable of this name decays."""
        return not any(re.search(pattern, variable_name) for pattern in self.excluded_from_decay)

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[tf.Tensor, tf.Variable]], *args: Any, **kwargs: Any
    ) -> Any:
        self._of_step.scalars = {}
        try:
            return super().apply_gradients(grads_and_vars, *args, **kwargs)
        finally:
            self._of_step.scalars = {}

    def update_step(self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable) -> None:
        rate, decay, epsilon = self._scalars_of(variable.dtype)
        index = self._index_dict[self._var_key(variable)]
        m, v = self._moments[index], self._velocities[index]
        # TF1 turns slices of an embedding's gradient into a dense one, so m and v of absent words decay as well.
        gradient = tf.convert_to_tensor(gradient)
        if self.decays(variable.name):
            # Before Adam's kernel, so that this takes a part of the variable as it was before the step.
            tf.raw_ops.ResourceApplyGradientDescent(
                var=variable.handle, alpha=decay, delta=tf.convert_to_tensor(variable), use_locking=True
            )
        # One kernel of what would be a dozen operations. Powers of beta that are 0 leave out the bias correction.
        zero = tf.zeros([], variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=m.handle,
            v=v.handle,
            beta1_power=zero,
            beta2_power=zero,
            lr=rate,
            beta1=tf.constant(self.beta_1, variable.dtype),
            beta2=tf.constant(self.beta_2, variable.dtype),
            epsilon=epsilon,
            grad=gradient,
            use_locking=True,
        )

    def _scalars_of(self, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Adam's rate, the rate of decay and Adam's epsilon, of `dtype`.

        Adam's kernel weighs gradients by 1 - β as rounded to the variable's type, 1e-5 off for β2 in float32, so its m
        and v are multiples of the true ones; its rate and ε take the factors back.
        """
        if dtype in self._of_step.scalars:
            return self._of_step.scalars[dtype]
        m_factor, v_factor = (_rounding_factor(beta, dtype) for beta in (self.beta_1, self.beta_2))
        learning_rate = tf.cast(self.learning_rate, dtype)
        self._of_step.scalars[dtype] = (
            learning_rate * (math.sqrt(v_factor) / m_factor),
            learning_rate * self.decay_rate,
            tf.constant(self.epsilon * math.sqrt(v_factor), dtype),
        )
        return self._of_step.scalars[dtype]

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "learning_rate": self._serialize_hyperparameter(self._learning_rate),
            "decay_rate": self.decay_rate,
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
            "excluded_from_decay": self.excluded_from_decay,
        }


def _rounding_factor(beta: float, dtype: tf.DType) -> float:
    """What arithmetic of `dtype` makes of 1 - `beta`, divided by it."""
    number = dtype.as_numpy_dtype
    return float(number(1) - number(beta)) / (1.0 - beta)


def apply_clipped(
    optimizer: AdamWeightDecay,
    gradients: Sequence[tf.Tensor | tf.IndexedSlices | None],
    variables: Sequence[tf.Variable],
) -> tf.Tensor:
    """Global norm of the gradients, after applying them clipped to norm 1.

    In a replica context the gradients are first summed over replicas, so that the norm is that of the global batch's
    gradient. Variables without a gradient stay exactly as they are (no decay either), as with TF1's optimiser.

    Args:
      optimizer: an `AdamWeightDecay`, built with all variables that it may ever see.
      gradients: list of tensor, `tf.IndexedSlices` or None.
      variables: those of the gradients, in the same order.
    """
    pairs = [(g, v) for g, v in zip(gradients, variables, strict=True) if g is not None]
    if not pairs:
        return tf.zeros([])
    gradients, variables = zip(*pairs, strict=True)
    replica_context = tf.distribute.get_replica_context()
    if replica_context.num_replicas_in_sync > 1:
        gradients = replica_context.all_reduce(tf.distribute.ReduceOp.SUM, list(gradients))
    clipped, norm = tf.clip_by_global_norm(gradients, CLIP_NORM)
    optimizer.apply_gradients(zip(clipped, variables, strict=True), skip_gradients_aggregation=True)
    return norm
