"""From the encoder's layers to one vector per sentence, for each `sentence_embedding_type`."""

import dataclasses
import re
from typing import Any

import tensorflow as tf

from bert_flow_tf.errors import ArgumentError

POOLING_TYPES = (
    "avg",
    "cls",
    "avg-last-N",
    "avg-last-last-N",
    "avg-last-concat-N",
    "paper-avg-last-N",
    "paper-concat-last-N",
    "paper-cls",
)


@dataclasses.dataclass(frozen=True)
class Pooling:
    """Callable from an encoder's outputs and the mask to embeddings [batch, `vectors` * hidden size].

    `layers` are indices into `encoder_outputs`, none for the pooled output; of each, the mean over the mask counts, or
    the state at [CLS] where `first_token`; the layers' vectors are averaged, or put side by side where `concatenate`.
    """

    layers: tuple[int, ...]
    concatenate: bool = False
    first_token: bool = False

    @property
    def vectors(self) -> int:
        """Number of vectors of the encoder's width in one embedding."""
        return len(self.layers) if self.concatenate else 1

    @property
    def first_token_only(self) -> bool:
        """Whether an embedding depends on the layers' states at [CLS] alone."""
        return self.first_token or not self.layers

    def __call__(self, outputs: dict[str, Any], mask: tf.Tensor) -> tf.Tensor:
        """Embeddings [batch, size] from an encoder's outputs and `input_mask` [batch, seq]."""
        if not self.layers:
            return outputs["pooled_output"]
        states = [outputs["encoder_outputs"][i] for i in self.layers]
        vectors = [state[:, 0] if self.first_token else masked_mean(state, mask) for state in states]
        if self.concatenate:
            return tf.concat(vectors, axis=-1)
        return vectors[0] if len(vectors) == 1 else tf.add_n(vectors) / len(vectors)


def masked_mean(states: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Mean of `states` [batch, seq, width] over the positions where `mask` [batch, seq] is 1: [batch, width]."""
    weights = tf.cast(mask, states.dtype)[:, :, tf.newaxis]
    return tf.reduce_sum(states * weights, axis=1) / tf.reduce_sum(weights, axis=1)


def pooling(name: str, num_layers: int) -> Pooling:
    """The `Pooling` that a `sentence_embedding_type` names, for an encoder of `num_layers` layers.

    `avg`, `cls`, `avg-last-N`, `avg-last-last-N` and `avg-last-concat-N` give what the original's code computes;
    `paper-avg-last-N` (mean of the last N layers), `paper-concat-last-N` (the last N side by side) and `paper-cls`
    (the last layer's state at [CLS]) give what the paper's words say.

    Raises:
      ArgumentError: the name is unknown, or N is 0 or more than `num_layers`.
    """
    if name == "avg":
        return Pooling((-1,))
    if name == "cls":
        return Pooling(())
    if name == "paper-cls":
        return Pooling((-1,), first_token=True)
    match = re.fullmatch(r"(avg-last|avg-last-last|avg-last-concat|paper-avg-last|paper-concat-last)-([0-9]+)", name)
    if not match:
        raise ArgumentError(
            f"pooling: found {name!r}, expected one of {', '.join(POOLING_TYPES)}, N from 1 to {num_layers}"
        )
    kind, digits = match.groups()
    if len(digits) > 1 and not kind.startswith("paper-"):
        # The original takes the name's last character for N, so it would read avg-last-12 as avg-last-2.
        raise ArgumentError(
            f"pooling: found {name!r}, expected N of one digit; the last {digits} layers are paper-avg-last-{digits}"
        )
    n = int(digits)
    if not 1 <= n <= num_layers:
        raise ArgumentError(f"pooling: found {name!r}, expected N from 1 to {num_layers}, the encoder's layers")
    if kind == "avg-last-last":
        return Pooling((num_layers - n,))
    if kind in ("avg-last", "avg-last-concat"):
        # First layer, then from the last one down: the original's loop starts at -0. Its test for "avg-last-" comes
        # before that for "avg-last-concat-", so the latter is never reached.
        return Pooling(tuple(-i for i in range(n)))
    return Pooling(tuple(range(num_layers - n, num_layers)), concatenate=kind == "paper-concat-last")
