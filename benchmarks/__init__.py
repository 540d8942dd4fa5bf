"""Speed of this project beside its alternatives: `python -m benchmarks.run`."""
