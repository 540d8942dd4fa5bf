"""Convert BERT weights of other formats to a TF-Hub encoder."""
