"""The original's experiment: runs with its flags, and the paper's tables."""
