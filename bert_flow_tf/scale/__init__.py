"""Sentences by the million: a folder of embeddings, and the workers that Ray starts."""
