"""A flow's variables under TF1's names, with reproducible initial values."""

import copy
import zlib
from collections.abc import Sequence

import numpy as np
import scipy.linalg
import tensorflow as tf


class Parameters:
    """Create a flow's variables and keep them by path.

    A variable's initial value depends only on the seed and its path; float32 and float64 variables
    round the same random numbers. All scopes share `variables`, in order of creation.
    """

    def __init__(self, *, seed: int, dtype: tf.DType) -> None:
        self.variables: dict[str, tf.Variable] = {}
        self._seed = seed
        self._dtype = dtype
        self._path = ""

    def scope(self, name: str) -> "Parameters":
        child = copy.copy(self)
        child._path = f"{self._path}{name}/"
        return child

    def variable(self, name: str, value: np.ndarray, trainable: bool = True) -> tf.Variable:
        """Create a variable with this initial value."""
        path = f"{self._path}{name}"
        scope, _, leaf = f"flow/{path}".rpartition("/")
        # The slash at the end makes the name absolute, so that it does not contain a caller's name
        # scope.
        with tf.init_scope(), tf.name_scope(f"{scope}/"):
            variable = tf.Variable(value, trainable=trainable, dtype=self._dtype, name=leaf)
        self.variables[path] = variable
        return variable

    def generator(self, name: str) -> np.random.Generator:
        """Return random numbers for a seed and a variable's path."""
        return np.random.default_rng([self._seed, zlib.crc32(f"{self._path}{name}".encode())])

    def zeros(self, name: str, shape: Sequence[int]) -> tf.Variable:
        return self.variable(name, np.zeros(shape))

    def normal(self, name: str, shape: Sequence[int], stddev: float) -> tf.Variable:
        return self.variable(name, self.generator(name).normal(0.0, stddev, shape))

    def glorot_uniform(self, name: str, size: int) -> tf.Variable:
        """Create a variable [size], initialised as TF1's [1, 1, 1, size]."""
        bound = np.sqrt(6.0 / (size + 1))
        return self.variable(name, self.generator(name).uniform(-bound, bound, size))

    def orthogonal_plu(self, size: int) -> tuple[tf.Variable, ...]:
        """Create P, L, U, sign_S and log_S of a random orthogonal matrix.

        It is Q of a matrix of uniform numbers in [0, 1), as in the original, so its first column
        has one sign.
        """
        uniform = self.generator("orthogonal").uniform(size=(size, size))
        p, lower, upper = scipy.linalg.lu(np.linalg.qr(uniform)[0])
        diagonal = np.diag(upper)
        return (
            self.variable("P", p, trainable=False),
            self.variable("L", lower),
            self.variable("U", np.triu(upper, k=1)),
            self.variable("sign_S", np.sign(diagonal), trainable=False),
            self.variable("log_S", np.log(np.abs(diagonal))),
        )
