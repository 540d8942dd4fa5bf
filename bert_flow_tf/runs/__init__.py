"""A run on disk: settings, folder, records."""
