"""How good embeddings are, measured."""
