"""Sentences by the million: shards, what is embedded of each, and the workers that do it."""
