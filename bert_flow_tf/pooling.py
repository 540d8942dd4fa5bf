"""From the encoder's layers to one vector a sentence, for each `sentence_embedding_type`."""

import dataclasses
import re

import tensorflow as tf

from bert_flow_tf.errors import UserError

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

    Attributes:
      name: the `sentence_embedding_type`.
      layers: indices into `encoder_outputs` of the layers taken; empty for the pooled output.
      concatenate: whether the layers' vectors are put side by side; else they are averaged.
      first_token: whether a layer's vector is its state at [CLS]; else it is the mean over the mask.
    """

    name: str
    layers: tuple
    concatenate: bool = False
    first_token: bool = False

    @property
    def vectors(self):
        """Number of vectors of the encoder's width in one embedding."""
        return len(self.layers) if self.concatenate else 1

    @property
    def first_token_only(self):
        """Whether an embedding depends on no layer's states but at [CLS]."""
        return self.first_token or not self.layers

    def __call__(self, outputs, mask):
        """Embeddings [batch, size] from an encoder's outputs and `input_mask` [batch, seq]."""
        if not self.layers:
            return outputs["pooled_output"]
        states = [outputs["encoder_outputs"][i] for i in self.layers]
        vectors = [state[:, 0] if self.first_token else masked_mean(state, mask) for state in states]
        if self.concatenate:
            return tf.concat(vectors, axis=-1)
        return vectors[0] if len(vectors) == 1 else tf.add_n(vectors) / len(vectors)


def masked_mean(states, mask):
    """Mean of `states` [batch, seq, width] over the positions where `mask` [batch, seq] is 1: [batch, width]."""
    weights = tf.cast(mask, states.dtype)[:, :, tf.newaxis]
    return tf.reduce_sum(states * weights, axis=1) / tf.reduce_sum(weights, axis=1)


def pooling(name, num_layers):
    """The `Pooling` that a `sentence_embedding_type` names, for an encoder of `num_layers` layers.

    `avg`, `cls`, `avg-last-N`, `avg-last-last-N` and `avg-last-concat-N` give what the original's code computes;
    `paper-avg-last-N` (mean of the last N layers), `paper-concat-last-N` (the last N side by side) and `paper-cls`
    (the last layer's state at [CLS]) give what the paper's words say.

    Raises:
      UserError: the name is unknown, or N is 0 or more than `num_layers`.
    """
    if name == "avg":
        return Pooling(name, (-1,))
    if name == "cls":
        return Pooling(name, ())
    if name == "paper-cls":
        return Pooling(name, (-1,), first_token=True)
    match = re.fullmatch(r"(avg-last|avg-last-last|avg-last-concat|paper-avg-last|paper-concat-last)-([0-9]+)", name)
    if not match:
        raise UserError(
            f"--sentence_embedding_type={name}: unknown, expected one of {', '.join(POOLING_TYPES)}, N from 1 "
            f"to {num_layers}"
        )
    kind, digits = match.groups()
    if len(digits) > 1 and not kind.startswith("paper-"):
        # The original takes the name's last character for N, so it would read avg-last-12 as avg-last-2.
        raise UserError(
            f"--sentence_embedding_type={name}: N has one digit here; the last {digits} layers are "
            f"paper-avg-last-{digits}"
        )
    n = int(digits)
    if not 1 <= n <= num_layers:
        raise UserError(
            f"--sentence_embedding_type={name}: the encoder has {num_layers} layers, expected N from 1 to {num_layers}"
        )
    if kind == "avg-last-last":
        return Pooling(name, (num_layers - n,))
    if kind in ("avg-last", "avg-last-concat"):
        # First layer, then from the last one down: the original's loop starts at -0. Its test for "avg-last-" comes
        # before that for "avg-last-concat-", so the latter is never reached.
        return Pooling(name, tuple(-i for i in range(n)))
    return Pooling(name, tuple(range(num_layers - n, num_layers)), concatenate=kind == "paper-concat-last")
