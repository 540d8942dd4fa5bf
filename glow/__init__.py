"""Glow with additive or affine coupling over vectors, as a chain of TensorFlow Probability bijectors."""
