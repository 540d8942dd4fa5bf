"""Sentence encoders: tokenizer, BERT, pooling, batches, cache."""
