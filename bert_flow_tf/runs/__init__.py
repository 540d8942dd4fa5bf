"""A run of `run_siamese` on disk: its settings, its folder, its checkpoints."""
