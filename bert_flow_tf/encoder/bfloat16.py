"""An encoder with its matrices rounded to bfloat16: what `encode` computes with, and what an export holds."""

import tensorflow as tf

from bert_flow_tf.encoder.fused_bert import FusedBert
from bert_flow_tf.encoder.pooling import Pooling


class RoundedEncoder:
    """What `SentenceEncoder` computes without dropout, from a copy of its weights with matrices rounded to bfloat16.

    Biases and norms are the encoder's own variables. Sums, attention, norms and activations stay float32.

    Args:
      multiply_in_bfloat16: whether products round what they multiply, see `arithmetic.multiplies_bfloat16`; else the
        rounded matrices are kept as float32, and all arithmetic is float32.
    """

    def __init__(
        self,
        fused: FusedBert,
        pooling: Pooling,
        variables: dict[str, tf.Variable],
        embedding_size: int,
        multiply_in_bfloat16: bool,
    ) -> None:
        self.variables_by_name = dict(variables)
        for name, variable in variables.items():
            if name.endswith(("/kernel", "/embeddings")):
                matrix = tf.cast(tf.convert_to_tensor(variable), tf.bfloat16)
                if not multiply_in_bfloat16:
                    matrix = tf.cast(matrix, tf.float32)
                self.variables_by_name[name] = tf.Variable(matrix, trainable=False, name=name)
        self.embedding_size = embedding_size
        self._fused = FusedBert(self.variables_by_name, approximate_gelu=fused.approximate_gelu)
        self._pooling = pooling

    @property
    def variables(self) -> list[tf.Variable]:
        """Rounded matrices, biases and norms."""
        return list(self.variables_by_name.values())

    def embed(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """Embeddings [batch, embedding_size] of the dict of inputs."""
        outputs = self._fused(inputs, last_layer_first_token_only=self._pooling.first_token_only)
        return self._pooling(outputs, inputs["input_mask"])

    def token_states(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        """The last layer's states [batch, seq, hidden_size] of the dict of inputs."""
        return self._fused(inputs)["sequence_output"]
