"""A flow behind a whitening.

A flow's couplings add to half of the channels what they compute from the other half, and its
permutations only reverse the channels, so no step rotates the space: a flow alone undoes
correlations of many channels badly. A whitening rotates them away.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from glow.calibration import AffineMap
from glow.config import GlowConfig
from glow.flow import Glow
from glow.folded import DenseLayer, FoldedFlow


class WhitenedFlow(tf.Module):
    """Map embeddings `u [..., D]` to `flow(whitening(u))`, with a density.

    `log p(u) = log p_flow((u - mean) @ matrix) + log |det matrix|`.

    Args:
      whitening: an invertible map.
      flow: learned on what `whitening` returns, of the same width.

    Attributes:
      event_size, output_size: D.
      config: the flow's configuration.
    """

    def __init__(self, whitening: AffineMap, flow: Glow) -> None:
        super().__init__(name="whitened_flow")
        for size in (whitening.output_size, flow.event_size):
            if size != whitening.event_size:
                raise ValueError(
                    f"flow: found {size} channels, expected the whitening's {whitening.event_size}"
                )
        self.whitening = whitening
        self.flow = flow
        self.event_size = flow.event_size
        self.output_size = flow.output_size
        self.config: GlowConfig = flow.config
        self.dtype = flow.dtype

    @property
    def variables_by_path(self) -> dict[str, tf.Variable]:
        """The variables by name; the whitening's begin with `whitening/`."""
        affine = self.whitening.variables_by_path
        return {f"whitening/{name}": variable for name, variable in affine.items()} | (
            self.flow.variables_by_path
        )

    def forward(self, u: tf.Tensor) -> tf.Tensor:
        """Return the latents z [..., D] of the embeddings `u` [..., D]."""
        return self.flow.forward(self.whitening.forward(u))

    def inverse(self, z: tf.Tensor) -> tf.Tensor:
        """Return the embeddings u [..., D] of the latents `z` [..., D]."""
        return self._unwhitened(self.flow.inverse(z))

    def log_prob(self, u: tf.Tensor) -> tf.Tensor:
        """Return the log-density [...] of the embeddings `u` [..., D], in nats."""
        return self.flow.log_prob(self.whitening.forward(u)) + self._log_det()

    def bits_per_dim(self, u: tf.Tensor, step: tf.Tensor | None = None) -> tf.Tensor:
        """Return `-log p(u) / (D ln 2)`, see `Glow.bits_per_dim`."""
        return self.forward_and_bits_per_dim(u, step)[1]

    def forward_and_bits_per_dim(
        self, u: tf.Tensor, step: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return `(forward(u), bits_per_dim(u, step))` in one pass."""
        z, bits_per_dim = self.flow.forward_and_bits_per_dim(self.whitening.forward(u), step)
        return z, bits_per_dim - self._log_det() / (self.event_size * math.log(2.0))

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """The flow's; the whitening stays as it is."""
        return self.flow.trainable_variables

    def sample(self, n: int, seed: int) -> tf.Tensor:
        """Draw `n` embeddings [n, D]; the seed determines them."""
        return self._unwhitened(self.flow.sample(n, seed))

    def dense_layers(self) -> list[DenseLayer]:
        """Return `forward` as dense layers; raise `ValueError` if none compute the flow."""
        (rotated,) = self.whitening.dense_layers()
        # The flow's first layer only adds the first actnorm's shift.
        shift, *others = self.flow.dense_layers()
        return [DenseLayer(rotated.kernel, rotated.bias + shift.bias), *others]

    def folded(self) -> FoldedFlow | None:
        """Return a `FoldedFlow` of the variables, or None without such a form."""
        return self.flow.folded(self.whitening)

    def fixed_forward(self) -> Callable[[tf.Tensor], tf.Tensor]:
        """Return the fastest form of `forward`, for variables that no longer change."""
        return self.folded() or self.forward

    def _log_det(self) -> tf.Tensor:
        matrix = tf.cast(self.whitening.variables_by_path["matrix"], tf.float64)
        return tf.cast(tf.linalg.slogdet(matrix).log_abs_determinant, self.dtype)

    def _unwhitened(self, x: tf.Tensor) -> tf.Tensor:
        variables = self.whitening.variables_by_path
        inverse = tf.linalg.inv(tf.cast(variables["matrix"], tf.float64))
        return x @ tf.cast(inverse, self.dtype) + variables["mean"]


# These calibrations have a density.
Flow = Glow | WhitenedFlow
