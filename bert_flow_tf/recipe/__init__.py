"""The whole method in stages, each done once."""
