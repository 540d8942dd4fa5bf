"""TF1 BERT's optimiser, learning rate and clipping of gradients."""

import functools
import math
import re
import types
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tf_keras

BETA_1 = 0.9
BETA_2 = 0.999
EPSILON = 1e-6
DECAY_RATE = 0.01
CLIP_NORM = 1.0
_EXCLUDED_FROM_DECAY = re.compile("LayerNorm|layer_norm|bias")


class AdamWeightDecay(tf_keras.optimizers.Optimizer):
    """Adam without bias correction and with decoupled weight decay.

    ``m = β1 m + (1 - β1) g``, ``v = β2 v + (1 - β2) g²``, ``w = w - lr (m / (sqrt(v) + ε) + decay
    w)``.

    Layer norms and biases do not decay. `apply_clipped` sums gradients over replicas and clips
    them.
    """

    def __init__(
        self,
        learning_rate: float | tf_keras.optimizers.schedules.LearningRateSchedule,
        name: str = "AdamWeightDecay",
    ) -> None:
        # Keras would apply its own weight decay to every variable even if the rate is 0.
        super().__init__(name=name, weight_decay=None, jit_compile=False)
        self._learning_rate = self._build_learning_rate(learning_rate)
        # Keep a step's scalars in an object that checkpoints do not track.
        self._step_values = types.SimpleNamespace()

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        # Keras calls this in every step with the variables that have gradients. Only the first list
        # is complete.
        if hasattr(self, "_moments"):
            return
        super().build(var_list)
        self._moments = [
            self.add_variable_from_reference(variable, "adam_m") for variable in var_list
        ]
        self._velocities = [
            self.add_variable_from_reference(variable, "adam_v") for variable in var_list
        ]

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Any:
        self._step_values.scalars = functools.cache(self._scalars)
        return super().apply_gradients(*args, **kwargs)

    def update_step(self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable) -> None:
        rate, decay, epsilon = self._step_values.scalars(variable.dtype)
        index = self._index_dict[self._var_key(variable)]
        m, v = self._moments[index], self._velocities[index]
        # As in TF1, a sparse gradient becomes dense, so m and v of absent words decay too.
        gradient = tf.convert_to_tensor(gradient)
        if decays(variable.name):
            # Decay uses the value before the step, so it comes before Adam's kernel.
            tf.raw_ops.ResourceApplyGradientDescent(
                var=variable.handle,
                alpha=decay,
                delta=tf.convert_to_tensor(variable),
                use_locking=True,
            )
        # One kernel replaces a dozen operations. Powers of 0 turn off its bias correction.
        zero = tf.zeros([], variable.dtype)
        state = {"var": variable.handle, "m": m.handle, "v": v.handle, "use_locking": True}
        powers = {"beta1_power": zero, "beta2_power": zero}
        betas = {
            "beta1": tf.constant(BETA_1, variable.dtype),
            "beta2": tf.constant(BETA_2, variable.dtype),
        }
        tf.raw_ops.ResourceApplyAdam(
            **state, **powers, **betas, lr=rate, epsilon=epsilon, grad=gradient
        )

    def _scalars(self, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Return Adam's learning rate, the decay rate and Adam's epsilon in `dtype`.

        Adam's kernel computes 1 - β in `dtype`; for β2 in float32, the error is 1e-5. It multiplies
        m and v by constants, for which the returned learning rate and ε compensate.
        """
        number = dtype.as_numpy_dtype
        m_factor, v_factor = (
            float(number(1) - number(beta)) / (1.0 - beta) for beta in (BETA_1, BETA_2)
        )
        learning_rate = tf.cast(self.learning_rate, dtype)
        adam_rate = learning_rate * (math.sqrt(v_factor) / m_factor)
        return (
            adam_rate,
            learning_rate * DECAY_RATE,
            tf.constant(EPSILON * math.sqrt(v_factor), dtype),
        )


def decays(variable_name: str) -> bool:
    return not _EXCLUDED_FROM_DECAY.search(variable_name)


def apply_clipped(
    optimizer: AdamWeightDecay,
    gradients: Sequence[tf.Tensor | tf.IndexedSlices | None],
    variables: Sequence[tf.Variable],
) -> tf.Tensor:
    """Apply gradients clipped to global norm 1; return the norm before clipping.

    In a replica context, gradients are first summed over replicas. As with TF1's optimiser, a
    variable without a gradient does not change, not even by weight decay. `optimizer` must be built
    with all variables.
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


class WarmupLinearDecay(tf_keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate of TF1 BERT's fine-tuning.

    With t counted from 1: `learning_rate * t / warmup_steps` while t < `warmup_steps`, then
    `learning_rate * (1 - t / total_steps)`, 0 from `total_steps` on.

    The original's graph does not say if a step is counted before or after it reads the rate. In the
    golden runs, on one CPU thread, it was before: their losses match t from 1 to seven digits.
    """

    def __init__(self, learning_rate: float, total_steps: float, warmup_steps: int = 0):
        self.learning_rate = learning_rate
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        step = tf.cast(step, tf.float32) + 1.0
        decayed = self.learning_rate * (1.0 - tf.minimum(step, self.total_steps) / self.total_steps)
        if not self.warmup_steps:
            return decayed
        return tf.where(
            step < self.warmup_steps, self.learning_rate * step / self.warmup_steps, decayed
        )
