"""TF1 BERT's learning rate: warm-up and linear decay."""

import tensorflow as tf
import tf_keras


class WarmupLinearDecay(tf_keras.optimizers.schedules.LearningRateSchedule):
    """The learning rate of TF1 BERT's fine-tuning.

    With t counted from 1: `learning_rate * t / warmup_steps` while t < `warmup_steps`, then
    `learning_rate * (1 - t / total_steps)`, 0 from `total_steps` on.

    The original's graph does not say if a step is counted before or after it reads the rate. In the golden runs, on one
    CPU thread, it was before: their losses match t from 1 to seven digits.
    """

    def __init__(self, learning_rate: float, total_steps: float, warmup_steps: int = 0):
        self.learning_rate, self.total_steps, self.warmup_steps = learning_rate, total_steps, warmup_steps

    def __call__(self, step: tf.Tensor) -> tf.Tensor:
        step = tf.cast(step, tf.float32) + 1.0
        decayed = self.learning_rate * (1.0 - tf.minimum(step, self.total_steps) / self.total_steps)
        if not self.warmup_steps:
            return decayed
        return tf.where(step < self.warmup_steps, self.learning_rate * step / self.warmup_steps, decayed)
