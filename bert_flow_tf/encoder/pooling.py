"""Poolings map the encoder's layers to one vector per sentence."""

import dataclasses
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bert_flow_tf.common.errors import ArgumentError, suggest

# Loading TensorFlow takes seconds, and checking a pooling's name does not need it.
if TYPE_CHECKING:
    import tensorflow as tf


def masked_mean(states: "tf.Tensor", mask: "tf.Tensor") -> "tf.Tensor":
    import tensorflow as tf

    weights = tf.cast(mask, states.dtype)[:, :, tf.newaxis]
    return tf.reduce_sum(states * weights, axis=1) / tf.reduce_sum(weights, axis=1)


def first_token(states: "tf.Tensor", mask: "tf.Tensor") -> "tf.Tensor":
    return states[:, 0]


@dataclasses.dataclass(frozen=True)
class Pooling:
    """Map an encoder's outputs and the mask to embeddings.

    Attributes:
      layers: indices into `encoder_outputs`; empty for the pooled output.
      concatenate: True to concatenate the layers' vectors, False to average them.
      reduce: function from a layer's states [batch, seq, width] and the mask [batch, seq] to
        [batch, width].
    """

    layers: tuple[int, ...]
    concatenate: bool = False
    reduce: "Callable[[tf.Tensor, tf.Tensor], tf.Tensor]" = masked_mean

    @property
    def first_token_only(self) -> bool:
        """True if an embedding depends only on the states at [CLS]."""
        return self.reduce is first_token or not self.layers

    def __call__(self, outputs: dict[str, Any], mask: "tf.Tensor") -> "tf.Tensor":
        import tensorflow as tf

        if not self.layers:
            return outputs["pooled_output"]
        vectors = [self.reduce(outputs["encoder_outputs"][i], mask) for i in self.layers]
        if len(vectors) == 1:
            return vectors[0]
        return tf.concat(vectors, axis=-1) if self.concatenate else tf.add_n(vectors) / len(vectors)


# N stands for a number. The original's loop starts at index -0, so its avg-last-N averages the
# first layer and the last N - 1. It tests for "avg-last-" before "avg-last-concat-", so
# avg-last-concat-N is the same average.
POOLINGS: dict[str, Callable[[int, int], Pooling]] = {
    "avg": lambda n, num_layers: Pooling((-1,)),
    "cls": lambda n, num_layers: Pooling(()),
    "avg-last-N": lambda n, num_layers: Pooling(tuple(-i for i in range(n))),
    "avg-last-last-N": lambda n, num_layers: Pooling((num_layers - n,)),
    "avg-last-concat-N": lambda n, num_layers: Pooling(tuple(-i for i in range(n))),
    "paper-avg-last-N": lambda n, num_layers: Pooling(tuple(range(num_layers - n, num_layers))),
    "paper-concat-last-N": lambda n, num_layers: Pooling(
        tuple(range(num_layers - n, num_layers)), concatenate=True
    ),
    "paper-cls": lambda n, num_layers: Pooling((-1,), reduce=first_token),
}

# These are sentence-transformers' names. Its cls is the last layer's state at [CLS], not the pooled
# output.
LIBRARY_NAMES = {"mean": "avg", "mean_tokens": "avg", "cls_token": "paper-cls"}


def pooling_name(name: str) -> str:
    """Return the original's name for a sentence-transformers pooling: `avg` for `mean`."""
    return LIBRARY_NAMES.get(name, name)


def pooling(name: str, num_layers: int) -> Pooling:
    key, n = check_pooling(name)
    if key.endswith("-N") and not 1 <= n <= num_layers:
        raise ArgumentError(
            f"pooling: found {name!r}, expected N from 1 to {num_layers}, the encoder's layers"
        )
    return POOLINGS[key](n, num_layers)


def check_pooling(name: str) -> tuple[str, int]:
    """Return a name's key in `POOLINGS` and its N (0 without N)."""
    name = pooling_name(name)
    key = re.sub("-[0-9]+$", "-N", name)
    digits = name.rpartition("-")[2]
    if key not in POOLINGS:
        raise ArgumentError(
            f"pooling: found {name!r}, expected one of "
            f"{', '.join(POOLINGS)}{suggest(name, POOLINGS)}"
        )
    # The original reads only the last character as N, so it would take avg-last-12 for avg-last-2.
    if key.startswith("avg-") and re.search("[0-9]{2}$", name):
        expected = f"N of one digit; the last {digits} layers are paper-avg-last-{digits}"
        raise ArgumentError(f"pooling: found {name!r}, expected {expected}")
    return key, int(digits) if digits.isdecimal() else 0


def pooling_module(name: str) -> str | None:
    """Return the module that registered a pooling; None for this one."""
    key, _ = check_pooling(name)
    module = POOLINGS[key].__module__
    return None if module == __name__ else module


def reduce_dimension(embedding: "tf.Tensor", low_dim: int) -> "tf.Tensor":
    """Average neighbouring channels of [n, D] to [n, low_dim], like the original.

    Reshape to [n, low_dim, D / low_dim] and average the last axis. Change nothing if `low_dim` is
    not positive.
    """
    if low_dim <= 0:
        return embedding
    import tensorflow as tf

    width = embedding.shape[-1]
    return tf.reduce_mean(tf.reshape(embedding, [-1, low_dim, width // low_dim]), axis=-1)


def check_low_dim(low_dim: int, embedding_size: int) -> None:
    """Raise `ArgumentError` unless `low_dim` divides the embedding size."""
    if low_dim > 0 and embedding_size % low_dim:
        raise ArgumentError(
            f"low_dim: found {low_dim}, expected a divisor of the embedding size {embedding_size}"
        )
