"""Write a model as a SavedModel or for another program."""

# The first type of the encoder's matrices is the default.
DTYPES = ("float32", "bfloat16")
