"""The end of every embedding: averages, an encoder's own norm, and truncation."""

import dataclasses
from typing import Any

import numpy as np

from bert_flow_tf.common.errors import ArgumentError
from bert_flow_tf.vectors.similarities import normalized
from glow.number_types import is_whole_number, plain_number


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tail:
    """Average, scale and cut vectors [..., width], in this order.

    Arrays stay arrays, and tensors [n, width] tensors.

    As in sentence-transformers, an encoder's own `Normalize` comes before the truncation, and a
    caller's normalization after it.

    Attributes:
      width: the number of channels before it.
      low_dim: the number of channels after averaging neighbours, like the original; not positive
        for no averages.
      normalizes: True for an encoder's own `Normalize`.
      truncate_dim: the number of leading channels to keep; None keeps all.

    Raises:
      ArgumentError: `low_dim` does not divide `width`, or `truncate_dim` is no number of channels.
    """

    width: int
    low_dim: int = -1
    normalizes: bool = False
    truncate_dim: int | None = None

    def __post_init__(self) -> None:
        if not is_whole_number(self.low_dim) or (self.low_dim > 0 and self.width % self.low_dim):
            raise ArgumentError(
                f"low_dim: found {self.low_dim!r}, expected a divisor of the embedding size "
                f"{self.width}"
            )
        self.check(self.truncate_dim)
        for name in ("low_dim", "truncate_dim"):
            # NumPy's numbers cannot be written as JSON.
            object.__setattr__(self, name, plain_number(getattr(self, name)))

    def check(self, truncate_dim: Any) -> None:
        """Raise `ArgumentError` unless `truncate_dim` is None or a number of channels."""
        if truncate_dim is None:
            return
        if not is_whole_number(truncate_dim) or not 1 <= truncate_dim <= self.averaged_size:
            expected = f"expected None or a whole number from 1 to {self.averaged_size}"
            raise ArgumentError(f"truncate_dim: found {truncate_dim!r}, {expected}")

    def with_size(self, truncate_dim: int | None) -> "Tail":
        """Return the tail with another `truncate_dim`."""
        return dataclasses.replace(self, truncate_dim=truncate_dim)

    @property
    def averaged_size(self) -> int:
        """The number of channels before `truncate_dim`."""
        return self.low_dim if self.low_dim > 0 else self.width

    @property
    def size(self) -> int:
        """The number of channels after it."""
        return self.truncate_dim or self.averaged_size

    @property
    def has_norm_1(self) -> bool:
        """True if every vector has norm 1, unless a caller says otherwise."""
        return self.normalizes and self.size == self.averaged_size

    def __call__(
        self, z: Any, normalize: bool | None = None, truncate_dim: int | None = None
    ) -> Any:
        """Return the embeddings of `z`, of the same type.

        Args:
          normalize: True scales to norm 1, False leaves the norms as they are, and None does as
            `normalizes` says.
          truncate_dim: the number of leading channels to keep; None for the tail's own.
        """
        if self.low_dim > 0:
            z = _averages(z, self.low_dim)
        if self.normalizes and normalize is None:
            z = _of_norm_1(z)
        if kept := truncate_dim or self.truncate_dim:
            z = z[..., :kept]
        return _of_norm_1(z) if normalize else z

    def recipe(self, normalize: bool | None = None) -> dict[str, Any]:
        """Return all that `__call__` depends on, as JSON values."""
        norm = "last" if normalize or self.has_norm_1 else "before truncation"
        if normalize is False or not (normalize or self.normalizes):
            norm = "none"
        return {
            "kind": "tail",
            "low_dim": max(self.low_dim, 0),
            "norm": norm,
            "size": self.size,
        }


def _averages(z: Any, count: int) -> Any:
    """Return the means of neighbouring channels, like the original: [..., count]."""
    if isinstance(z, np.ndarray):
        return z.reshape(*z.shape[:-1], count, -1).mean(axis=-1)
    # Only whoever passes a tensor, [n, width], has TensorFlow.
    import tensorflow as tf

    return tf.reduce_mean(tf.reshape(z, [-1, count, z.shape[-1] // count]), axis=-1)


def _of_norm_1(z: Any) -> Any:
    if isinstance(z, np.ndarray):
        return normalized(z)
    import tensorflow as tf

    return tf.nn.l2_normalize(z, axis=-1)
