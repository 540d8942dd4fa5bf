"""A run on disk: settings, folder, checkpoints."""
