"""Measure vectors by NumPy alone; define a sentence model's interface."""
