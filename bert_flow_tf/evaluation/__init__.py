"""Metrics of embeddings, calibrations, and the paper's analyses."""
