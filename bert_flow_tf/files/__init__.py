"""Files that are whole or not there: writing, digests, and the files of sentences and embeddings."""
