"""The paper's figures and settings, and the results of the original code."""
