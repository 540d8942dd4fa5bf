"""Atomic writing, locks, digests, and files of sentences and embeddings."""
