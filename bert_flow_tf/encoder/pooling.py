"""From the encoder's layers to one vector per sentence, for each `sentence_embedding_type`."""

import dataclasses
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bert_flow_tf.errors import ArgumentError, nearest

# TensorFlow takes seconds to load: not for a mistake in a name.
if TYPE_CHECKING:
    import tensorflow as tf


def masked_mean(states: "tf.Tensor", mask: "tf.Tensor") -> "tf.Tensor":
    """Mean of `states` [batch, seq, width] over the positions where `mask` [batch, seq] is 1: [batch, width]."""
    import tensorflow as tf

    weights = tf.cast(mask, states.dtype)[:, :, tf.newaxis]
    return tf.reduce_sum(states * weights, axis=1) / tf.reduce_sum(weights, axis=1)


def first_token(states: "tf.Tensor", mask: "tf.Tensor") -> "tf.Tensor":
    """The state at [CLS], [batch, width], of `states` [batch, seq, width]."""
    return states[:, 0]


@dataclasses.dataclass(frozen=True)
class Pooling:
    """Callable from an encoder's outputs and the mask to embeddings [batch, `vectors` * hidden size].

    Attributes:
      layers: indices into `encoder_outputs`, none for the pooled output.
      concatenate: True to put the layers' vectors side by side; else they are averaged.
      reduce: makes [batch, width] of a layer's states [batch, seq, width] and the mask [batch, seq].
    """

    layers: tuple[int, ...]
    concatenate: bool = False
    reduce: "Callable[[tf.Tensor, tf.Tensor], tf.Tensor]" = masked_mean

    @property
    def vectors(self) -> int:
        """Number of vectors of the encoder's width in one embedding."""
        return len(self.layers) if self.concatenate else 1

    @property
    def first_token_only(self) -> bool:
        """True if an embedding depends on the layers' states at [CLS] alone."""
        return self.reduce is first_token or not self.layers

    def __call__(self, outputs: dict[str, Any], mask: "tf.Tensor") -> "tf.Tensor":
        """Embeddings [batch, size] from an encoder's outputs and `input_mask` [batch, seq]."""
        import tensorflow as tf

        if not self.layers:
            return outputs["pooled_output"]
        vectors = [self.reduce(outputs["encoder_outputs"][i], mask) for i in self.layers]
        if len(vectors) == 1:
            return vectors[0]
        return tf.concat(vectors, axis=-1) if self.concatenate else tf.add_n(vectors) / len(vectors)


# Name -> the `Pooling` for N and the encoder's number of layers; a name that ends in N takes a number there. The
# original's loop starts at -0, so its avg-last-N takes the first layer and then those from the last one down. Its test
# for "avg-last-" comes before that for "avg-last-concat-", which is never reached.
POOLINGS: dict[str, Callable[[int, int], Pooling]] = {
    "avg": lambda n, num_layers: Pooling((-1,)),
    "cls": lambda n, num_layers: Pooling(()),
    "avg-last-N": lambda n, num_layers: Pooling(tuple(-i for i in range(n))),
    "avg-last-last-N": lambda n, num_layers: Pooling((num_layers - n,)),
    "avg-last-concat-N": lambda n, num_layers: Pooling(tuple(-i for i in range(n))),
    "paper-avg-last-N": lambda n, num_layers: Pooling(tuple(range(num_layers - n, num_layers))),
    "paper-concat-last-N": lambda n, num_layers: Pooling(tuple(range(num_layers - n, num_layers)), concatenate=True),
    "paper-cls": lambda n, num_layers: Pooling((-1,), reduce=first_token),
}


def pooling(name: str, num_layers: int) -> Pooling:
    """The `Pooling` of `POOLINGS` that a `sentence_embedding_type` names, for an encoder of `num_layers` layers.

    Raises:
      ArgumentError: the name is unknown, or N is 0 or more than `num_layers`.
    """
    key, n = check_pooling(name)
    if key.endswith("-N") and not 1 <= n <= num_layers:
        raise ArgumentError(f"pooling: found {name!r}, expected N from 1 to {num_layers}, the encoder's layers")
    return POOLINGS[key](n, num_layers)


def check_pooling(name: str) -> tuple[str, int]:
    """Return a name's key in `POOLINGS` and its N, 0 without one; raise `ArgumentError` if it is unknown."""
    key, digits = re.sub("-[0-9]+$", "-N", name), name.rpartition("-")[2]
    if key not in POOLINGS:
        raise ArgumentError(f"pooling: found {name!r}, expected one of {', '.join(POOLINGS)}{nearest(name, POOLINGS)}")
    # The original takes the name's last character for N, so it would read avg-last-12 as avg-last-2.
    if key.startswith("avg-") and re.search("[0-9]{2}$", name):
        expected = f"N of one digit; the last {digits} layers are paper-avg-last-{digits}"
        raise ArgumentError(f"pooling: found {name!r}, expected {expected}")
    return key, int(digits) if digits.isdecimal() else 0
