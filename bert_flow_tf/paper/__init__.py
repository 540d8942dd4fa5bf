"""The paper's figures, the presets that its tables need, and runs of the original code."""
