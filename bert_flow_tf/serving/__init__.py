"""A model as a SavedModel for TensorFlow Serving."""

# What an export may keep and multiply the encoder's matrices in; the first is the default.
DTYPES = ("float32", "bfloat16")
