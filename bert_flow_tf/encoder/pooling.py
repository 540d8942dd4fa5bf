"""Poolings map the encoder's layers to one vector per sentence."""

import dataclasses
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bert_flow_tf.common.errors import ArgumentError, suggest
from glow.parts import code_digest, is_part_path, resolve_part

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
_MakePooling = Callable[[int, int], Pooling]
_POOLINGS: dict[str, _MakePooling] = {
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
    make, n = check_pooling(name)
    if n is not None and not 1 <= n <= num_layers:
        raise ArgumentError(
            f"pooling: found {name!r}, expected N from 1 to {num_layers}, the encoder's layers"
        )
    found = make(n or 0, num_layers)
    if not isinstance(found, Pooling):
        raise ArgumentError(f"pooling: {name} returned {found!r:.60}, expected a Pooling")
    return found


def check_pooling(name: str) -> tuple[_MakePooling, int | None]:
    """Return the function that makes a pooling, and its N.

    One of one's own is `module:name` or `module:name-N`, see `glow.parts`.
    """
    name = pooling_name(name)
    start, digits = _split(name)
    if is_part_path(start):
        try:
            return resolve_part(start), None if digits is None else int(digits)
        except ValueError as error:
            raise ArgumentError(f"pooling: {error}") from error
    key = start if digits is None else f"{start}-N"
    if key not in _POOLINGS:
        raise ArgumentError(
            f"pooling: found {name!r}, expected one of {', '.join(_POOLINGS)} or module:name of "
            f"one's own{suggest(name, _POOLINGS)}"
        )
    # The original reads only the last character as N, so it would take avg-last-12 for avg-last-2.
    if digits and key.startswith("avg-") and len(digits) > 1:
        expected = f"N of one digit; the last {digits} layers are paper-avg-last-{digits}"
        raise ArgumentError(f"pooling: found {name!r}, expected {expected}")
    return _POOLINGS[key], None if digits is None else int(digits)


def pooling_code(name: str) -> dict[str, str]:
    """Return the code's digest, by path, of a pooling of one's own.

    Raises:
      ArgumentError: another process could not import it, see `glow.parts.code_digest`.
    """
    path, _ = _split(name)
    try:
        return {path: code_digest(path)} if is_part_path(path) else {}
    except ValueError as error:
        raise ArgumentError(f"pooling: {error}") from error


def _split(name: str) -> tuple[str, str | None]:
    """Return a name without its N, and the digits of N."""
    found = re.fullmatch(r"(.+?)(?:-([0-9]+))?", name, re.DOTALL)
    return (name, None) if found is None else (found[1], found[2])


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
