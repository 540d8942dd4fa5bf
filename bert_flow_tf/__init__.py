"""BERT-flow for TensorFlow 2."""
