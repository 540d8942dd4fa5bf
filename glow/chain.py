"""Several maps of vectors as one.

A flow's couplings add to half of the channels what they compute from the other half, and its
permutations only reverse the channels, so no step rotates the space: a flow alone undoes
correlations of many channels badly. A whitening before it rotates them away.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from glow.flow import Glow
from glow.folded import DenseLayer, FoldedFlow
from glow.maps import AffineMap, Forward, VectorMap, identity_of, in_blocks
from glow.tracing import traced_once


class Chain(tf.Module):
    """Map vectors `u [..., D]` by one map after another; without maps, the identity.

    With a flow as the last map and invertible affine maps before it, the chain has a density:
    `log p(u) = log p_flow(x) + Σ log |det matrix|`, where x is what the affine maps make of u.

        >>> from glow.config import GlowConfig
        >>> whitening = AffineMap(8, matrix=2.0 * np.eye(8))
        >>> chain = Chain([whitening, Glow(GlowConfig(n_levels=2), 8, seed=0)], 8)
        >>> chain.transform(np.ones([3, 8], np.float32)).shape
        (3, 8)

    Args:
      maps: each takes what the one before returns.
      event_size: D.

    Raises:
      ValueError: a map does not take as many channels as the one before returns.
    """

    def __init__(self, maps: Sequence[VectorMap], event_size: int) -> None:
        super().__init__(name="chain")
        size = event_size
        for one in maps:
            if one.event_size != size:
                raise ValueError(f"maps: found one of {one.event_size} channels, expected {size}")
            size = one.output_size
        self.maps = list(maps)
        self.event_size = event_size
        self.output_size = size
        self.dtype = tf.float32
        self._fixed: _Fixed | None = None

    @property
    def flow(self) -> Glow | None:
        """The last map, if it is a flow."""
        last = self.maps[-1] if self.maps else None
        return last if isinstance(last, Glow) else None

    @property
    def _before(self) -> list[VectorMap]:
        return self.maps if self.flow is None else self.maps[:-1]

    @property
    def has_density(self) -> bool:
        """True for a flow behind invertible affine maps."""
        return self.flow is not None and self.has_bits_before

    @property
    def variables_by_path(self) -> dict[str, tf.Variable]:
        """The variables by name, which begins with the map's number."""
        return {
            f"{i}/{name}": variable
            for i, one in enumerate(self.maps)
            for name, variable in one.variables_by_path.items()
        }

    @property
    def identities(self) -> list[dict[str, Any]]:
        """The maps' recipes with digests of their arrays.

        Raises `ValueError` for a map that cannot be identified.
        """
        return [identity_of(one) for one in self.maps]

    @property
    def trainable_variables(self) -> tuple[tf.Variable, ...]:
        """The flow's; affine maps stay as they are."""
        return () if self.flow is None else self.flow.trainable_variables

    def forward(self, u: tf.Tensor) -> tf.Tensor:
        """Return the mapped vectors [..., d] of `u` [..., D]."""
        return functools.reduce(lambda x, one: one.forward(x), self.maps, u)

    def transform(self, rows: np.ndarray) -> np.ndarray:
        """Return the mapped vectors, float32 [..., d], of an array [..., D].

        It uses the fastest form, which is made again after a variable has changed.
        """
        if not self.maps:
            return rows
        fixed = self._fixed or _Fixed(self)
        if not fixed.is_current():
            fixed = _Fixed(self)
        self._fixed = fixed
        found = in_blocks(fixed.forward, rows.reshape(-1, self.event_size))
        return found.reshape(*rows.shape[:-1], self.output_size)

    def dense_layers(self) -> list[DenseLayer]:
        """Return `forward` as dense layers; raise `ValueError` if none compute it."""
        layers: list[DenseLayer] = []
        for one in self.maps:
            first, *others = one.dense_layers()
            if layers:
                # A map's last layer is linear, so the next one's first is part of it.
                kernel, bias, _ = layers.pop()
                first = DenseLayer(
                    kernel @ first.kernel, bias @ first.kernel + first.bias, first.slope
                )
            layers += [first, *others]
        return layers

    def fixed_forward(self) -> Forward:
        """Return the fastest form of `forward`, for variables that no longer change."""
        forms = [one.fixed_forward() for one in self.maps]
        return lambda u: functools.reduce(lambda x, form: form(x), forms, u)

    def inverse(self, z: tf.Tensor) -> tf.Tensor:
        """Return the vectors u [..., D] of `z` [..., D]."""
        return functools.reduce(lambda x, one: one.inverse(x), self._with_density()[::-1], z)

    def log_prob(self, u: tf.Tensor) -> tf.Tensor:
        """Return the log-density [...] of the vectors `u` [..., D], in nats."""
        *before, flow = self._with_density()
        x = functools.reduce(lambda x, one: one.forward(x), before, u)
        return flow.log_prob(x) + tf.cast(self._log_det(), self.dtype)

    def bits_per_dim(self, u: tf.Tensor, step: tf.Tensor | None = None) -> tf.Tensor:
        """Return `-log p(u) / (D ln 2)`, see `Glow.bits_per_dim`."""
        return self.forward_and_bits_per_dim(u, step)[1]

    def forward_and_bits_per_dim(
        self, u: tf.Tensor, step: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return `(forward(u), bits_per_dim(u, step))` in one pass."""
        *before, flow = self._with_density()
        x = functools.reduce(lambda x, one: one.forward(x), before, u)
        z, bits_per_dim = flow.forward_and_bits_per_dim(x, step)
        return z, bits_per_dim + self.bits_before()

    @property
    def has_bits_before(self) -> bool:
        """True for invertible affine maps before the flow, if there is one."""
        return all(isinstance(one, AffineMap) and one.is_invertible for one in self._before)

    def bits_before(self) -> tf.Tensor:
        """Return the bits per dimension [] of the maps before the flow."""
        return tf.cast(-self._log_det() / (self.event_size * math.log(2.0)), self.dtype)

    def sample(self, n: int, seed: int) -> tf.Tensor:
        """Draw `n` vectors [n, D] of the density; the seed determines them."""
        *before, flow = self._with_density()
        return functools.reduce(lambda x, one: one.inverse(x), before[::-1], flow.sample(n, seed))

    def _with_density(self) -> list[Any]:
        """Return the maps; raise `ValueError` for other maps than the flow's."""
        if self.flow is None or not all(isinstance(one, AffineMap) for one in self.maps[:-1]):
            found = ", ".join(one.kind for one in self.maps) or "no map"
            raise ValueError(f"found {found}, expected a flow, or one behind affine maps")
        return self.maps

    def _log_det(self) -> tf.Tensor:
        """Return the maps' `log |det|` before the flow, float64; minus infinity without one."""
        log_det = tf.zeros([], tf.float64)
        for one in self._before:
            log_det += tf.cast(one.log_det() if isinstance(one, AffineMap) else -np.inf, tf.float64)
        return log_det


class _Fixed:
    """The fastest form of a chain, traced.

    Attributes:
      forward: function of [n, D].
      is_current: function that returns False once a folded variable has changed.
    """

    def __init__(self, chain: Chain) -> None:
        forms = [one.fixed_forward() for one in chain.maps]
        self.forward = traced_once(
            lambda u: functools.reduce(lambda x, form: form(x), forms, u),
            tf.TensorSpec([None, chain.event_size], chain.dtype),
        )
        folded = [form for form in forms if isinstance(form, FoldedFlow)]
        self.is_current = traced_once(
            lambda: tf.reduce_all([one.is_current() for one in folded] or [True])
        )
