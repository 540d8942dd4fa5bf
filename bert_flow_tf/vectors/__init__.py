"""Measures of vectors by NumPy alone, and the interface of a sentence model."""
