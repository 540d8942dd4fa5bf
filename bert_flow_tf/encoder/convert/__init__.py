"""BERT weights of other formats as a TF-Hub encoder."""
