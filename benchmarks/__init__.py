"""Side-by-side measurements of this project and of what people would use instead: `python -m benchmarks.run`."""
