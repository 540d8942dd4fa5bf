"""A small vocabulary, and random pairs of sentences over it."""

import numpy as np

from bert_flow_tf.original import pairs
from bert_flow_tf.tasks.tasks import Examples, get_task

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(59))]


def make_pairs(tokenizer, n=6, max_seq_length=10):
    a = [" ".join(f"w{j}" for j in range(i + 1)) for i in range(n)]
    b = [f"w{20 + i}" for i in range(n)]
    examples = Examples(a, b, np.arange(n, dtype=np.float32) % 6, has_labels=True)
    labels = pairs.scaled_labels(examples, get_task("sts-b"))
    return pairs.tokenize_pairs(tokenizer, examples, labels, max_seq_length)
