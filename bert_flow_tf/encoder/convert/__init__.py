"""Read BERTs of TF1, TF-Hub and Hugging Face; write encoder folders."""
