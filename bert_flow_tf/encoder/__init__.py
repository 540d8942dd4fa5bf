"""From sentences to pooled embeddings: tokenizer, encoder, batches, cache."""
