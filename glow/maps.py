"""The interface of maps of vectors, and the affine map.

A *map* takes vectors [..., event_size] to [..., output_size]: a flow (`glow.flow`), an `AffineMap`,
or a map of one's own. `glow.chain.Chain` composes them. A *calibrator* (`glow.calibrator`) learns
one, with the interface of scikit-learn.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
import tensorflow as tf

from glow.folded import DenseLayer, FoldedFlow
from glow.parts import code_digest, is_part_path

# Up to so many rows, NumPy's calls cost less than TensorFlow's.
_NUMPY_ROWS = 64
_ROWS_PER_CALL = 4096
# Float32 has 7 digits.
_LARGEST_CONDITION = 1e6

Forward = Callable[[tf.Tensor], tf.Tensor]


class VectorMap(Protocol):
    """A map of vectors [..., event_size] to [..., output_size].

    Attributes:
      kind: "flow", "affine", or `module:name` of a class of one's own.
    """

    kind: ClassVar[str]
    event_size: int

    @property
    def output_size(self) -> int:
        """The number of channels of `forward`'s result."""

    @property
    def recipe(self) -> dict[str, Any]:
        """All that `forward` depends on but the arrays, as JSON values.

        Its `kind` is the map's.

        Raises `ValueError` for a map that cannot be identified, which has no folder.
        """

    @property
    def variables_by_path(self) -> dict[str, tf.Variable]:
        """The variables by name."""

    def forward(self, u: tf.Tensor) -> tf.Tensor:
        """Return the mapped vectors [..., d] of `u` [..., D]."""

    def dense_layers(self) -> list[DenseLayer]:
        """Return `forward` as dense layers; raise `ValueError` if none compute it."""

    def fixed_forward(self) -> Forward:
        """Return the fastest form of `forward`, for variables that no longer change."""


class AffineMap(tf.Module):
    """Map embeddings `u [..., D]` to `(u - mean) @ matrix` [..., d].

    Li et al. 2020, section 4.3, compare the flow with standard normalization (SN) and with nulling
    away the top singular vectors (NATSV). Whitening is by Su et al. 2021.

        >>> half = AffineMap(4, mean=np.ones(4), matrix=np.eye(4)[:, :2])
        >>> half.output_size
        2

    Args:
      event_size: D.
      mean: [D]; by default zeros.
      matrix: [D, d]; by default the identity.
    """

    kind: ClassVar[str] = "affine"

    def __init__(
        self, event_size: int, mean: np.ndarray | None = None, matrix: np.ndarray | None = None
    ) -> None:
        super().__init__(name="affine")
        self.event_size = event_size
        self.dtype = tf.float32
        self._mean = tf.Variable(np.zeros(event_size) if mean is None else mean, dtype=self.dtype)
        self._matrix = tf.Variable(
            np.eye(event_size) if matrix is None else matrix, dtype=self.dtype
        )
        self.output_size = int(self._matrix.shape[1])

    @property
    def recipe(self) -> dict[str, Any]:
        """The kind and the sizes."""
        return {
            "kind": self.kind,
            "event_size": self.event_size,
            "output_size": self.output_size,
        }

    @classmethod
    def from_recipe(cls, recipe: Mapping[str, Any]) -> "AffineMap":
        """Return the map with initial values."""
        event_size = int(recipe["event_size"])
        return cls(event_size, matrix=np.eye(event_size, int(recipe["output_size"])))

    def __reduce__(self) -> tuple:
        mean, matrix = (variable.numpy() for variable in self.variables_by_path.values())
        return AffineMap, (self.event_size, mean, matrix)

    @property
    def variables_by_path(self) -> dict[str, tf.Variable]:
        """The variables by name."""
        return {"mean": self._mean, "matrix": self._matrix}

    def forward(self, u: tf.Tensor) -> tf.Tensor:
        """Return the mapped vectors [..., d] of `u` [..., D]."""
        centred = u - self._mean
        if centred.shape.rank == 2:
            return centred @ self._matrix
        return tf.tensordot(centred, self._matrix, axes=1)

    @property
    def is_invertible(self) -> bool:
        """True for a matrix whose inverse has digits in float32."""
        if self.output_size != self.event_size:
            return False
        # Rounding gives a projection a determinant, of tiny factors.
        return bool(np.linalg.cond(self._matrix.numpy().astype(np.float64)) < _LARGEST_CONDITION)

    def inverse(self, z: tf.Tensor) -> tf.Tensor:
        """Return the vectors u [..., D] of `z` [..., D]."""
        inverse = tf.cast(tf.linalg.inv(tf.cast(self._matrix, tf.float64)), self.dtype)
        return tf.tensordot(tf.convert_to_tensor(z, self.dtype), inverse, axes=1) + self._mean

    def log_det(self) -> tf.Tensor:
        """Return `log |det matrix|` [], in nats; minus infinity for a singular matrix."""
        if self.output_size != self.event_size:
            return tf.constant(-np.inf, self.dtype)
        matrix = tf.cast(self._matrix, tf.float64)
        return tf.cast(tf.linalg.slogdet(matrix).log_abs_determinant, self.dtype)

    def dense_layers(self) -> list[DenseLayer]:
        """Return `forward` as one dense layer, whose bias is computed in float64."""
        mean, matrix = (
            np.asarray(variable.numpy(), np.float64) for variable in (self._mean, self._matrix)
        )
        return [DenseLayer(matrix, -mean @ matrix)]

    def fixed_forward(self) -> Forward:
        """Return `forward`, which is only two operations."""
        return self.forward


def recipe_of(one: VectorMap) -> dict[str, Any]:
    """Return a map's recipe and the digest of its code.

    Raises `ValueError` for a map that cannot be identified.
    """
    return dict(one.recipe) | code_of_kind(one.kind)


def code_of_kind(kind: str) -> dict[str, dict[str, str]]:
    """Return the digest of a kind's code as part of a recipe."""
    return {"code": {kind: code_digest(kind)}} if is_part_path(kind) else {}


def identity_of(one: VectorMap) -> dict[str, Any]:
    """Return `recipe_of` with the digest of a map's arrays."""
    return {**recipe_of(one), "arrays": arrays_digest(one.variables_by_path)}


def arrays_digest(variables: Mapping[str, tf.Variable]) -> str:
    """Return the SHA-256 of variables: their names, types, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(variables):
        array = variables[name].numpy()
        digest.update(f"{name} {array.dtype.name} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()


def forward_rows(forward: Forward, u: np.ndarray) -> np.ndarray:
    """Apply `VectorMap.fixed_forward` to an array [n, D], some thousand rows per call."""
    if len(u) <= _NUMPY_ROWS and isinstance(forward, FoldedFlow):
        return forward.of_array(u)
    return in_blocks(forward, u)


def in_blocks(function: Forward, rows: np.ndarray) -> np.ndarray:
    """Apply a function to an array's rows, some thousand per call."""
    if len(rows) <= _ROWS_PER_CALL:
        return np.array(function(rows))
    starts = range(0, len(rows), _ROWS_PER_CALL)
    return np.concatenate([function(rows[i : i + _ROWS_PER_CALL]) for i in starts])
