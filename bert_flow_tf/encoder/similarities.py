"""The cosine of embeddings in a TensorFlow graph; `vectors.similarities` has the others."""

import tensorflow as tf


def cosine_similarity(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(tf.nn.l2_normalize(a, axis=-1) * tf.nn.l2_normalize(b, axis=-1), axis=-1)
