"""A model as a SavedModel for TensorFlow Serving."""

# What the encoder's matrices may be kept and multiplied in; the first is the default.
DTYPES = ("float32", "bfloat16")
